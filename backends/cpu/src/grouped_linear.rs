//! Fast for the reason of [`crate::linear`], expert by expert: a job is up to 16 rows of one expert,
//! so that an expert's weights are read once for them, and tokens are gathered, never moved.

use crate::linear::{Input, TILE_ROWS, Weights, project};
use crate::pool::Pool;
use crate::tiles::{Tile, tiles};
use layerlet_core::launch::{LaunchError, Operation};
use layerlet_core::memory::Memory;
use layerlet_core::numerics::bf16;
use layerlet_core::ops::{GroupedLinearBf16, GroupedLinearW8A8, RowSource};

/// Rows of an expert, the expert's number, and where they go.
struct ExpertTile<'a> {
    expert: usize,
    tile: Tile<'a, bf16>,
}

/// The input row of expert row `p`.
fn source_row(source: RowSource, slot_of_row: &[u32], p: usize) -> usize {
    match source {
        RowSource::Token { k } => slot_of_row[p] as usize / k,
        RowSource::Row => p,
    }
}

/// Whether groups and sources are in range; where not, the definition names the fault.
fn is_valid(offsets: &[u32], slot_of_row: &[u32], source: RowSource, inputs: usize) -> bool {
    let rows = offsets.last().map_or(0, |&end| end as usize);
    offsets.first() == Some(&0)
        && offsets.is_sorted()
        && rows <= slot_of_row.len()
        && (0..rows).all(|p| source_row(source, slot_of_row, p) < inputs)
}

/// Cuts the output `[P, N]` by expert, rows and columns; rows past the last group become zero.
fn expert_tiles<'a>(
    pool: &Pool,
    work: usize,
    mut out: &'a mut [bf16],
    n: usize,
    offsets: &[u32],
) -> Vec<ExpertTile<'a>> {
    let groups = offsets.windows(2).enumerate().filter(|(_, w)| w[0] < w[1]);
    let blocks: usize = groups
        .clone()
        .map(|(_, w)| ((w[1] - w[0]) as usize).div_ceil(TILE_ROWS))
        .sum();
    let columns = n.div_ceil(pool.jobs_for(work).div_ceil(blocks.max(1)));
    let mut jobs = Vec::new();
    for (expert, w) in groups {
        let (own, rest) = out.split_at_mut((w[1] - w[0]) as usize * n);
        out = rest;
        for mut tile in tiles(own, n, TILE_ROWS, columns) {
            tile.row += w[0] as usize;
            jobs.push(ExpertTile { expert, tile });
        }
    }
    out.fill(bf16::ZERO);
    jobs
}

/// The bf16 operation.
pub fn run_bf16(
    op: &GroupedLinearBf16,
    pool: &Pool,
    memory: &mut Memory<'_>,
) -> Result<(), LaunchError> {
    let [inputs, k] = memory.dims(op.x);
    let [_, n, _] = memory.dims(op.weight);
    let valid = is_valid(
        memory.get(op.offsets),
        memory.get(op.slot_of_row),
        op.source,
        inputs,
    );
    if !valid {
        return op.run(memory);
    }
    let mut out = memory.take(op.out);
    let (x, weight) = (memory.get(op.x), memory.get(op.weight));
    let (offsets, slot_of_row) = (memory.get(op.offsets), memory.get(op.slot_of_row));
    let work = out.len().saturating_mul(k);
    pool.each(
        work,
        expert_tiles(pool, work, &mut out, n, offsets),
        |job| {
            let ExpertTile { expert, mut tile } = job;
            let rows = tile.row..tile.row + tile.rows.len();
            let rows = rows.map(|p| &x[source_row(op.source, slot_of_row, p) * k..][..k]);
            let columns = tile.column..tile.column + tile.rows[0].len();
            let weights = Weights::Bf16(weight).of_expert(expert, n, k);
            let input = Input::widen(pool.level, rows);
            project(pool.level, weights, &input, k, columns, &mut tile.rows);
        },
    );
    memory.put(op.out, out);
    Ok(())
}

/// The W8A8 operation.
pub fn run_w8a8(
    op: &GroupedLinearW8A8,
    pool: &Pool,
    memory: &mut Memory<'_>,
) -> Result<(), LaunchError> {
    let [inputs, k] = memory.dims(op.codes);
    let [_, n, _] = memory.dims(op.weight);
    let valid = is_valid(
        memory.get(op.offsets),
        memory.get(op.slot_of_row),
        op.source,
        inputs,
    );
    if !valid {
        return op.run(memory);
    }
    let mut out = memory.take(op.out);
    let (codes, scale) = (memory.get(op.codes), memory.get(op.scale));
    let (weight, weight_scale) = (memory.get(op.weight), memory.get(op.weight_scale));
    let (offsets, slot_of_row) = (memory.get(op.offsets), memory.get(op.slot_of_row));
    let work = out.len().saturating_mul(k);
    pool.each(
        work,
        expert_tiles(pool, work, &mut out, n, offsets),
        |job| {
            let ExpertTile { expert, mut tile } = job;
            let rows = tile.row..tile.row + tile.rows.len();
            let rows = rows.map(|p| source_row(op.source, slot_of_row, p));
            let rows = rows.map(|row| (&codes[row * k..][..k], scale[row]));
            let input = Input::codes(pool.level, k, rows);
            let columns = tile.column..tile.column + tile.rows[0].len();
            let weights = Weights::W8A8(weight, weight_scale).of_expert(expert, n, k);
            project(pool.level, weights, &input, k, columns, &mut tile.rows);
        },
    );
    memory.put(op.out, out);
    Ok(())
}
