//! Fast for the reason of [`crate::linear`], expert by expert: a job is up to 64 rows of one expert,
//! so that an expert's weights are read once for them, and tokens are gathered, never moved.

use crate::linear::{Input, TILE_ROWS, Weights, project, tile_rows};
use crate::pool::Pool;
use crate::tiles::{Tile, tiles};
use layerlet_core::launch::{LaunchError, Operation};
use layerlet_core::memory::Memory;
use layerlet_core::numerics::bf16;
use layerlet_core::ops::{GroupedLinearBf16, GroupedLinearW8A8, RowSource};

/// Rows of an expert, the expert's number, and where they go.
struct ExpertTile<'a, 'b> {
    expert: usize,
    tile: Tile<'a, 'b, bf16>,
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
fn expert_tiles<'a, 'b>(
    pool: &'b Pool,
    work: usize,
    mut out: &'a mut [bf16],
    n: usize,
    offsets: &[u32],
) -> &'b mut [ExpertTile<'a, 'b>]
where
    'a: 'b,
{
    let groups = offsets.windows(2).enumerate().filter(|(_, w)| w[0] < w[1]);
    let blocks: usize = groups
        .clone()
        .map(|(_, w)| ((w[1] - w[0]) as usize).div_ceil(TILE_ROWS))
        .sum();
    let columns = n.div_ceil(pool.jobs_for(work).div_ceil(blocks.max(1)));
    let live = offsets.last().map_or(0, |&end| end as usize);
    let (own, rest) = std::mem::take(&mut out).split_at_mut(live * n);
    rest.fill(bf16::ZERO);
    let mut own = own;
    let jobs = groups.flat_map(|(expert, w)| {
        let (group, others) = std::mem::take(&mut own).split_at_mut((w[1] - w[0]) as usize * n);
        own = others;
        let tiles = tiles(pool.arena(), group, n, TILE_ROWS, columns);
        tiles.map(move |mut tile| {
            tile.row += w[0] as usize;
            ExpertTile { expert, tile }
        })
    });
    pool.list(jobs)
}

/// The experts' linear layer, whose input rows `push` adds by their number among expert rows.
fn run(
    pool: &Pool,
    weights: Weights<'_>,
    (n, k): (usize, usize),
    offsets: &[u32],
    out: &mut [bf16],
    push: impl Fn(usize, &mut Input<'_>) + Sync,
) {
    let work = out.len().saturating_mul(k);
    let largest = offsets.windows(2).map(|w| (w[1] - w[0]) as usize).max();
    let rows = tile_rows(largest.unwrap_or(0));
    pool.each_with(
        work,
        expert_tiles(pool, work, out, n, offsets),
        || Input::room(pool, weights.form(), rows, k),
        |ExpertTile { expert, tile }, input| {
            input.clear();
            (tile.row..tile.row + tile.rows.len()).for_each(|row| push(row, input));
            let columns = tile.column..tile.column + tile.width();
            project(weights.of_expert(*expert, n, k), input, columns, tile.rows);
        },
    );
}

/// The bf16 operation.
pub fn run_bf16(
    op: &GroupedLinearBf16,
    pool: &Pool,
    memory: &mut Memory<'_>,
) -> Result<(), LaunchError> {
    let [inputs, k] = memory.dims(op.x);
    let [_, n, _] = memory.dims(op.weight);
    let (offsets, slot_of_row) = (memory.get(op.offsets), memory.get(op.slot_of_row));
    if !is_valid(offsets, slot_of_row, op.source, inputs) {
        return op.run(memory);
    }
    let mut out = memory.take(op.out);
    let (offsets, slot_of_row) = (memory.get(op.offsets), memory.get(op.slot_of_row));
    let (x, weights) = (memory.get(op.x), Weights::Bf16(memory.get(op.weight)));
    run(pool, weights, (n, k), offsets, &mut out, |row, input| {
        let source = source_row(op.source, slot_of_row, row);
        input.push(&x[source * k..][..k]);
    });
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
    let (offsets, slot_of_row) = (memory.get(op.offsets), memory.get(op.slot_of_row));
    if !is_valid(offsets, slot_of_row, op.source, inputs) {
        return op.run(memory);
    }
    let mut out = memory.take(op.out);
    let (offsets, slot_of_row) = (memory.get(op.offsets), memory.get(op.slot_of_row));
    let (codes, scale) = (memory.get(op.codes), memory.get(op.scale));
    let weights = Weights::W8A8(memory.get(op.weight), memory.get(op.weight_scale));
    run(pool, weights, (n, k), offsets, &mut out, |row, input| {
        let source = source_row(op.source, slot_of_row, row);
        input.push_codes(&codes[source * k..][..k], scale[source]);
    });
    memory.put(op.out, out);
    Ok(())
}
