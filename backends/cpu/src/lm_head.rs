//! Fast for the reason of [`crate::linear`]: threads get parts of the vocabulary, and each weight
//! row meets all rows that want logits while it is in the nearest cache.

use crate::linear::{Input, Weights, linear_tiles, project};
use crate::pool::Pool;
use layerlet_core::NONE;
use layerlet_core::launch::{LaunchError, Operation};
use layerlet_core::memory::Memory;
use layerlet_core::numerics::bf16;
use layerlet_core::ops::LmHead;

/// The operation.
pub fn run(op: &LmHead, pool: &Pool, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
    let [rows, k] = memory.dims(op.x);
    let live = |&row: &u32| row == NONE || (row as usize) < rows;
    if !memory.get(op.out_rows).iter().all(live) {
        return op.run(memory);
    }
    let mut logits = memory.take(op.logits);
    let [vocabulary, _] = memory.dims(op.weight);
    let (x, out_rows) = (memory.get(op.x), memory.get(op.out_rows));
    let weights = Weights::Bf16(memory.get(op.weight));
    let work = logits.len().saturating_mul(k);
    pool.each(
        work,
        linear_tiles(pool, work, &mut logits, vocabulary),
        |tile| {
            let columns = tile.column..tile.column + tile.rows[0].len();
            let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
            for (out, &row) in tile.rows.into_iter().zip(&out_rows[tile.row..]) {
                match row {
                    NONE => out.fill(bf16::ZERO),
                    row => {
                        inputs.push(&x[row as usize * k..][..k]);
                        outputs.push(out);
                    }
                }
            }
            let input = Input::widen(pool.level, inputs);
            project(pool.level, weights, &input, k, columns, &mut outputs);
        },
    );
    memory.put(op.logits, logits);
    Ok(())
}
