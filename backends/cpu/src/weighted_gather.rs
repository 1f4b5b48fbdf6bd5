//! Fast because the expert rows of a token are added row by row into one f32 row that stays in the
//! nearest cache, in slot order, and are rounded once at the end.

use crate::arena::zeros;
use crate::level::{Level, per_level};
use crate::pool::Pool;
use crate::vector::widen;
use layerlet_core::NONE;
use layerlet_core::launch::{LaunchError, Operation};
use layerlet_core::memory::Memory;
use layerlet_core::numerics::{bf16, round_bf16};
use layerlet_core::ops::WeightedGather;

per_level! {
    fn add_weighted(weight: f32, y: &[bf16], sum: &mut [f32]) {
        for (sum, &y) in sum.iter_mut().zip(y) {
            *sum += weight * widen(y);
        }
    }

    fn round_row(sum: &[f32], out: &mut [bf16]) {
        for (out, &sum) in out.iter_mut().zip(sum) {
            *out = round_bf16(sum);
        }
    }
}

/// Weighted sum of the rows that `experts` yields in slot order; `sum` is room for one row.
pub fn weighted_sum<'a>(
    level: Level,
    experts: impl Iterator<Item = (f32, &'a [bf16])>,
    sum: &mut [f32],
    out: &mut [bf16],
) {
    sum.fill(0.0);
    for (weight, y) in experts {
        add_weighted(level, weight, y, sum);
    }
    round_row(level, sum, out);
}

/// The operation.
pub fn run(op: &WeightedGather, pool: &Pool, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
    let level = pool.level;
    let [rows, width] = memory.dims(op.y);
    let live = |&row: &u32| row == NONE || (row as usize) < rows;
    if !memory.get(op.row_of_slot).iter().all(live) {
        return op.run(memory);
    }
    let mut out = memory.take(op.out);
    let [_, k] = memory.dims(op.weights);
    let (y, weights) = (memory.get(op.y), memory.get(op.weights));
    let row_of_slot = memory.get(op.row_of_slot);
    let row = || zeros(pool.arena(), width);
    pool.rows_with(k * width, &mut out, width, row, |token, out, sum| {
        let slots = token * k..(token + 1) * k;
        let experts = row_of_slot[slots.clone()]
            .iter()
            .zip(&weights[slots])
            .filter(|(row, _)| **row != NONE)
            .map(|(&row, &weight)| (weight, &y[row as usize * width..][..width]));
        weighted_sum(level, experts, sum, out);
    });
    memory.put(op.out, out);
    Ok(())
}
