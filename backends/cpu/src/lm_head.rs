//! Fast for the reason of [`crate::linear`]: threads get parts of the vocabulary, and each weight
//! row meets all rows that want logits while it is in the nearest cache.

use crate::linear::{Input, Weights, linear_tiles, project, tile_rows};
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
    let tile = tile_rows(out_rows.len());
    pool.each_with(
        work,
        linear_tiles(pool, work, &mut logits, vocabulary),
        || Input::room(pool, weights.form(), tile, k),
        |tile, input| {
            let columns = tile.column..tile.column + tile.width();
            // Rows that want no logits move behind those that do.
            input.clear();
            let mut live = 0;
            for r in 0..tile.rows.len() {
                match out_rows[tile.row + r] {
                    NONE => tile.rows[r].fill(bf16::ZERO),
                    row => {
                        input.push(&x[row as usize * k..][..k]);
                        tile.rows.swap(live, r);
                        live += 1;
                    }
                }
            }
            project(weights, input, columns, &mut tile.rows[..live]);
        },
    );
    memory.put(op.logits, logits);
    Ok(())
}
