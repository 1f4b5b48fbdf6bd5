//! Fast because the halves that rotate against each other are two contiguous slices, and a row's
//! cosines and sines serve all its heads.

use crate::level::{Level, per_level};
use crate::pool::Pool;
use crate::vector::widen;
use layerlet_core::launch::{LaunchError, Operation};
use layerlet_core::memory::Memory;
use layerlet_core::numerics::{bf16, round_bf16};
use layerlet_core::ops::Rope;

/// The table of angles, `[positions, 2, half]`.
#[derive(Clone, Copy)]
pub struct Angles<'a> {
    /// Cosines, then sines, of each position.
    pub table: &'a [bf16],
    /// Angles of a position.
    pub half: usize,
}

impl Angles<'_> {
    /// Rotates one head in place.
    pub fn rotate(&self, level: Level, position: u32, head: &mut [bf16]) {
        let row = &self.table[position as usize * 2 * self.half..][..2 * self.half];
        let (cos, sin) = row.split_at(self.half);
        let (a, rest) = head.split_at_mut(self.half);
        rotate_halves(level, a, &mut rest[..cos.len()], cos, sin);
    }
}

per_level! {
    fn rotate_halves(a: &mut [bf16], b: &mut [bf16], cos: &[bf16], sin: &[bf16]) {
        for (((a, b), &cos), &sin) in a.iter_mut().zip(b).zip(cos).zip(sin) {
            let (x, y, cos, sin) = (widen(*a), widen(*b), widen(cos), widen(sin));
            *a = round_bf16(x * cos - y * sin);
            *b = round_bf16(y * cos + x * sin);
        }
    }
}

/// The operation.
pub fn run(op: &Rope, pool: &Pool, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
    let level = pool.level;
    let [table_rows, _, half] = memory.dims(op.table);
    let in_table = |&p: &u32| (p as usize) < table_rows;
    if !memory.get(op.positions).iter().all(in_table) {
        return op.run(memory);
    }
    let mut out = memory.take(op.out);
    let [_, width] = memory.dims(op.x);
    let (x, positions) = (memory.get(op.x), memory.get(op.positions));
    let angles = Angles {
        table: memory.get(op.table),
        half,
    };
    pool.rows(2 * width, &mut out, width, |row, out| {
        out.copy_from_slice(&x[row * width..][..width]);
        for head in out.chunks_exact_mut(op.head_dim) {
            angles.rotate(level, positions[row], head);
        }
    });
    memory.put(op.out, out);
    Ok(())
}
