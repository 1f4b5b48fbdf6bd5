//! Fast because a tile's input rows are widened once (to f32, or to i16 for codes) and then meet
//! every weight row of the tile while that row is in the nearest cache; threads get columns, so
//! that each weight is read by one thread and no sum is cut.

use crate::pool::Pool;
use crate::quantize_rows::quantize_row;
use crate::tiles::{Tile, tiles};
use crate::vector::{dot, dot_codes, widen_row};
use layerlet_core::memory::Memory;
use layerlet_core::numerics::{bf16, round_bf16};
use layerlet_core::ops::{LinearBf16, LinearW8A8, LinearW8A8Partial};
use std::ops::Range;

/// Input rows of a tile: as many as stay in the second-level cache.
pub const TILE_ROWS: usize = 16;

/// Columns of a tile are multiples of this: a cache line of outputs, so that no two threads share one.
const COLUMN_STEP: usize = 32;

/// The weights of a linear layer, `[N, K]` row by row.
#[derive(Clone, Copy)]
pub enum Weights<'a> {
    /// bf16.
    Bf16(&'a [bf16]),
    /// s8 with one scale a row.
    W8A8(&'a [i8], &'a [f32]),
}

impl<'a> Weights<'a> {
    /// Of the layers `[E, N, K]` of all experts, that of one.
    pub fn of_expert(self, expert: usize, n: usize, k: usize) -> Weights<'a> {
        let rows = expert * n..(expert + 1) * n;
        match self {
            Weights::Bf16(weight) => Weights::Bf16(&weight[rows.start * k..rows.end * k]),
            Weights::W8A8(weight, scale) => {
                Weights::W8A8(&weight[rows.start * k..rows.end * k], &scale[rows])
            }
        }
    }
}

/// Input rows in the form in which the inner loops read them.
pub enum Input {
    /// bf16 rows, widened.
    Wide(Vec<f32>),
    /// Codes and one scale a row.
    Codes(Vec<i16>, Vec<f32>),
}

impl Input {
    /// Rows for bf16 weights.
    pub fn widen<'a>(rows: impl IntoIterator<Item = &'a [bf16]>) -> Input {
        let mut wide = Vec::new();
        rows.into_iter().for_each(|row| widen_row(row, &mut wide));
        Input::Wide(wide)
    }

    /// Codes that somebody else computed.
    pub fn codes<'a>(rows: impl IntoIterator<Item = (&'a [i8], f32)>) -> Input {
        let (mut codes, mut scales) = (Vec::new(), Vec::new());
        for (row, scale) in rows {
            codes.extend(row.iter().map(|&c| i16::from(c)));
            scales.push(scale);
        }
        Input::Codes(codes, scales)
    }

    /// Codes of bf16 rows, computed here.
    pub fn quantize<'a>(rows: impl IntoIterator<Item = &'a [bf16]>) -> Input {
        let (mut codes, mut scales) = (Vec::new(), Vec::new());
        for row in rows {
            let start = codes.len();
            codes.resize(start + row.len(), 0);
            scales.push(quantize_row(row, &mut codes[start..]));
        }
        Input::Codes(codes, scales)
    }
}

/// Columns `columns` of a linear layer: `out[r]` gets those of input row `r`.
pub fn project(
    weights: Weights<'_>,
    input: &Input,
    k: usize,
    columns: Range<usize>,
    out: &mut [&mut [bf16]],
) {
    match (weights, input) {
        (Weights::Bf16(weight), Input::Wide(x)) => {
            let weight = weight[columns.start * k..columns.end * k].chunks_exact(k);
            for (c, w) in weight.enumerate() {
                for (x, out) in x.chunks_exact(k).zip(&mut *out) {
                    out[c] = round_bf16(dot(x, w));
                }
            }
        }
        (Weights::W8A8(weight, weight_scale), Input::Codes(codes, scales)) => {
            sums(weight, codes, k, columns.clone(), |row, c, acc| {
                let y = (acc as f32 * scales[row]) * weight_scale[columns.start + c];
                out[row][c] = round_bf16(y);
            });
        }
        _ => unreachable!("the form of the input is chosen by the weights"),
    }
}

/// The i32 sums of columns `columns`, handed out as `(row, column - columns.start, sum)`.
fn sums(
    weight: &[i8],
    codes: &[i16],
    k: usize,
    columns: Range<usize>,
    mut store: impl FnMut(usize, usize, i32),
) {
    const ROWS: usize = 4;
    let weight = weight[columns.start * k..columns.end * k].chunks_exact(k);
    for (c, w) in weight.enumerate() {
        let mut quads = codes.chunks_exact(ROWS * k);
        let mut row = 0;
        for quad in quads.by_ref() {
            let rows: [&[i16]; ROWS] = std::array::from_fn(|r| &quad[r * k..][..k]);
            for acc in dot_codes(rows, w) {
                store(row, c, acc);
                row += 1;
            }
        }
        for x in quads.remainder().chunks_exact(k) {
            let [acc] = dot_codes([x], w);
            store(row, c, acc);
            row += 1;
        }
    }
}

/// The tiles into which an output `[M, N]` is cut, given its multiply-adds.
pub fn linear_tiles<'a, T>(
    pool: &Pool,
    work: usize,
    out: &'a mut [T],
    n: usize,
) -> Vec<Tile<'a, T>> {
    let columns = n.div_ceil(pool.jobs_for(work));
    tiles(out, n, TILE_ROWS, columns.next_multiple_of(COLUMN_STEP))
}

/// A linear layer whose input rows `first..first + count` are made by `input`.
pub fn linear(
    pool: &Pool,
    weights: Weights<'_>,
    k: usize,
    n: usize,
    out: &mut [bf16],
    input: impl Fn(Range<usize>) -> Input + Sync,
) {
    let work = out.len().saturating_mul(k);
    pool.each(work, linear_tiles(pool, work, out, n), |mut tile| {
        let input = input(tile.row..tile.row + tile.rows.len());
        let columns = tile.column..tile.column + tile.rows[0].len();
        project(weights, &input, k, columns, &mut tile.rows);
    });
}

/// The rows `rows` of a matrix with rows of `width`.
pub fn row_slices<T>(matrix: &[T], width: usize, rows: Range<usize>) -> impl Iterator<Item = &[T]> {
    rows.map(move |r| &matrix[r * width..][..width])
}

/// The bf16 operation.
pub fn run_bf16(op: &LinearBf16, pool: &Pool, memory: &mut Memory<'_>) {
    let mut out = memory.take(op.out);
    let [n, k] = memory.dims(op.weight);
    let x = memory.get(op.x);
    let weights = Weights::Bf16(memory.get(op.weight));
    linear(pool, weights, k, n, &mut out, |rows| {
        Input::widen(row_slices(x, k, rows))
    });
    memory.put(op.out, out);
}

/// The W8A8 operation.
pub fn run_w8a8(op: &LinearW8A8, pool: &Pool, memory: &mut Memory<'_>) {
    let mut out = memory.take(op.out);
    let [n, k] = memory.dims(op.weight);
    let (codes, scale) = (memory.get(op.codes), memory.get(op.scale));
    let weights = Weights::W8A8(memory.get(op.weight), memory.get(op.weight_scale));
    linear(pool, weights, k, n, &mut out, |rows| {
        Input::codes(rows.map(|r| (&codes[r * k..][..k], scale[r])))
    });
    memory.put(op.out, out);
}

/// The i32 sums of one rank.
pub fn run_partial(op: &LinearW8A8Partial, pool: &Pool, memory: &mut Memory<'_>) {
    let mut acc = memory.take(op.acc);
    let [n, k] = memory.dims(op.weight);
    let (codes, weight) = (memory.get(op.codes), memory.get(op.weight));
    let work = acc.len().saturating_mul(k);
    pool.each(work, linear_tiles(pool, work, &mut acc, n), |mut tile| {
        let rows = &codes[tile.row * k..][..tile.rows.len() * k];
        let rows: Vec<i16> = rows.iter().map(|&c| i16::from(c)).collect();
        let columns = tile.column..tile.column + tile.rows[0].len();
        sums(weight, &rows, k, columns, |row, c, acc| {
            tile.rows[row][c] = acc
        });
    });
    memory.put(op.acc, acc);
}
