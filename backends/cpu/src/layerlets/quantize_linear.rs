//! Quantise and multiply: fast because the codes of a row never leave the thread that multiplies
//! them; every thread computes them again for its columns, which costs less than sharing them.

use super::stages::find;
use crate::linear::{Input, TILE_ROWS, Weights, project, row_slices};
use crate::pool::Pool;
use crate::tiles::{Tile, tiles};
use layerlet_core::launch::{Fused, Launch};
use layerlet_core::memory::Memory;
use layerlet_core::numerics::bf16;
use layerlet_core::ops::{LinearW8A8, QuantizeRows};

/// `None`: not stages that this kernel knows.
pub fn run(fused: &Fused, pool: &Pool, memory: &mut Memory<'_>) -> Option<()> {
    let (quantize, linears) = recognise(fused)?;
    let [rows, k] = memory.dims(quantize.x);
    let mut outs: Vec<_> = linears.iter().map(|op| memory.take(op.out)).collect();
    let x = memory.get(quantize.x);
    let weights: Vec<_> = linears
        .iter()
        .map(|op| Weights::W8A8(memory.get(op.weight), memory.get(op.weight_scale)))
        .collect();
    let widths: Vec<_> = linears.iter().map(|op| memory.dims(op.weight)).collect();
    let total: usize = widths.iter().map(|[n, _]| n).sum();
    let work = rows.saturating_mul(total).saturating_mul(k);
    let columns = total.div_ceil(pool.jobs_for(work)).next_multiple_of(32);
    let jobs: Vec<(usize, Tile<'_, bf16>)> = outs
        .iter_mut()
        .zip(&widths)
        .enumerate()
        .flat_map(|(i, (out, &[n, _]))| {
            let cut = tiles(out, n, TILE_ROWS, columns);
            cut.into_iter().map(move |tile| (i, tile))
        })
        .collect();
    let kept = pool.map(work, jobs, |(i, mut tile)| {
        let input = Input::quantize(
            pool.level,
            k,
            row_slices(x, k, tile.row..tile.row + tile.rows.len()),
        );
        let at = tile.column..tile.column + tile.rows[0].len();
        project(pool.level, weights[i], &input, k, at, &mut tile.rows);
        let first = fused.keep_intermediates && i == 0 && tile.column == 0;
        first.then_some((tile.row, input))
    });
    for (op, out) in linears.iter().zip(outs) {
        memory.put(op.out, out);
    }
    for (row, input) in kept.into_iter().flatten() {
        store(quantize, row, k, &input, memory);
    }
    Some(())
}

fn recognise(fused: &Fused) -> Option<(&QuantizeRows, Vec<&LinearW8A8>)> {
    let quantize = find!(fused.stages, QuantizeRows(op))?;
    let linears: Vec<_> = fused
        .stages
        .iter()
        .filter_map(|stage| match stage {
            Launch::LinearW8A8(op) if op.codes == quantize.codes && op.scale == quantize.scale => {
                Some(op)
            }
            _ => None,
        })
        .collect();
    (linears.len() + 1 == fused.stages.len()).then_some((quantize, linears))
}

/// Stores codes that a kernel kept to itself, from row `row` on.
pub fn store(op: &QuantizeRows, row: usize, k: usize, input: &Input, memory: &mut Memory<'_>) {
    let Input::Codes(codes, scales) = input else {
        return;
    };
    memory.get_mut(op.scale)[row..][..scales.len()].copy_from_slice(scales);
    let codes = codes.all();
    memory.get_mut(op.codes)[row * k..][..codes.len()].copy_from_slice(codes);
}
