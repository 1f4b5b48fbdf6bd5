//! Quantise and multiply: fast because the codes of a row never leave the thread that multiplies
//! them; every thread computes them again for its columns, which costs less than sharing them.

use super::stages::find;
use crate::linear::{Form, Input, TILE_ROWS, Weights, project, row_slices, tile_rows};
use crate::pool::Pool;
use crate::tiles::tiles;
use layerlet_core::launch::{Fused, Launch};
use layerlet_core::memory::Memory;
use layerlet_core::ops::{LinearW8A8, QuantizeRows};
use std::mem::take;
use std::sync::{Mutex, PoisonError};

/// Codes and scales of some rows, from row `first` on.
pub struct Quantised {
    first: usize,
    codes: Vec<i8>,
    scales: Vec<f32>,
}

impl Quantised {
    /// What a thread multiplied with.
    pub fn of(input: &Input<'_>, first: usize) -> Quantised {
        let (codes, scales) = input.quantised();
        Quantised {
            first,
            codes: codes.to_vec(),
            scales: scales.to_vec(),
        }
    }

    /// Stores it where the operation would have.
    pub fn store(&self, op: &QuantizeRows, k: usize, memory: &mut Memory<'_>) {
        memory.get_mut(op.scale)[self.first..][..self.scales.len()].copy_from_slice(&self.scales);
        let codes = &mut memory.get_mut(op.codes)[self.first * k..];
        codes[..self.codes.len()].copy_from_slice(&self.codes);
    }
}

/// `None`: not stages that this kernel knows.
pub fn run(fused: &Fused, pool: &Pool, memory: &mut Memory<'_>) -> Option<()> {
    let quantize = find!(fused.stages, QuantizeRows(op))?;
    let linears = pool.list(linears_of(fused, quantize));
    if linears.len() + 1 != fused.stages.len() {
        return None;
    }
    let [rows, k] = memory.dims(quantize.x);
    let outs = pool.list(linears.iter().map(|op| memory.take(op.out)));
    let (x, blocks) = (memory.get(quantize.x), rows.div_ceil(TILE_ROWS).max(1));
    let weight =
        |op: &LinearW8A8| Weights::W8A8(memory.get(op.weight), memory.get(op.weight_scale));
    let weights = pool.list(linears.iter().map(|op| weight(op)));
    let width = |op: &LinearW8A8| memory.dims::<_, 2>(op.weight)[0];
    let total: usize = linears.iter().map(|op| width(op)).sum();
    let work = rows.saturating_mul(total).saturating_mul(k);
    let columns = total.div_ceil(pool.jobs_for(work).div_ceil(blocks));
    let columns = columns.max(1).next_multiple_of(32);
    let cut = linears.iter().zip(outs.iter_mut()).enumerate();
    let jobs = pool.list(cut.flat_map(|(i, (op, out))| {
        let tiles = tiles(pool.arena(), out, width(op), TILE_ROWS, columns);
        tiles.map(move |tile| (i, tile))
    }));
    let kept = Mutex::new(Vec::new());
    let room = || Input::room(pool, Form::Codes, tile_rows(rows), k);
    pool.each_with(work, jobs, room, |(i, tile), input| {
        input.clear();
        let rows = tile.row..tile.row + tile.rows.len();
        row_slices(x, k, rows).for_each(|row| input.push(row));
        let at = tile.column..tile.column + tile.width();
        project(weights[*i], input, at, tile.rows);
        if fused.keep_intermediates && *i == 0 && tile.column == 0 {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.push(Quantised::of(input, tile.row));
        }
    });
    for (op, out) in linears.iter().zip(outs) {
        memory.put(op.out, take(out));
    }
    for quantised in kept.into_inner().unwrap_or_else(PoisonError::into_inner) {
        quantised.store(quantize, k, memory);
    }
    Some(())
}

fn linears_of<'a>(
    fused: &'a Fused,
    quantize: &QuantizeRows,
) -> impl Iterator<Item = &'a LinearW8A8> {
    fused.stages.iter().filter_map(|stage| match stage {
        Launch::LinearW8A8(op) if op.codes == quantize.codes && op.scale == quantize.scale => {
            Some(op)
        }
        _ => None,
    })
}
