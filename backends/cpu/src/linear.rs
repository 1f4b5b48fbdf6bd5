//! Fast because a tile's input rows are prepared once and then meet every weight row of the tile while
//! that row is in the nearest cache; threads get columns, so that each weight is read by one thread
//! and no sum is cut. The inner loops are [`dot_codes`] and, for bf16, [`crate::vector`].

use crate::dot_codes::{Codes, dot_codes};
use crate::level::{Level, per_level};
use crate::pool::Pool;
use crate::quantize_rows::quantize_row;
use crate::tiles::{Tile, tiles};
use crate::vector::{dot, dot_two, push_widened, widen_row};
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
    Codes(Codes, Vec<f32>),
}

impl Input {
    /// Rows for bf16 weights.
    pub fn widen<'a>(level: Level, rows: impl IntoIterator<Item = &'a [bf16]>) -> Input {
        let mut wide = Vec::new();
        rows.into_iter()
            .for_each(|row| append(level, row, &mut wide));
        Input::Wide(wide)
    }

    /// Codes of width `k` that somebody else computed.
    pub fn codes<'a>(
        level: Level,
        k: usize,
        rows: impl IntoIterator<Item = (&'a [i8], f32)>,
    ) -> Input {
        let (mut codes, mut scales) = (Codes::new(k), Vec::new());
        for (row, scale) in rows {
            codes.push(level, |out| out.copy_from_slice(row));
            scales.push(scale);
        }
        Input::Codes(codes, scales)
    }

    /// Codes of bf16 rows of width `k`, computed here.
    pub fn quantize<'a>(
        level: Level,
        k: usize,
        rows: impl IntoIterator<Item = &'a [bf16]>,
    ) -> Input {
        let (mut codes, mut scales) = (Codes::new(k), Vec::new());
        for row in rows {
            scales.push(codes.push(level, |out| quantize_row(level, row, out)));
        }
        Input::Codes(codes, scales)
    }
}

per_level! {
    fn append(row: &[bf16], wide: &mut Vec<f32>) {
        push_widened(row, wide);
    }

    /// Columns of a bf16 linear layer, handed out as `(row, column, sum)`.
    fn dot_wide[F: FnMut(usize, usize, f32)][F](x: &[f32], weight: &[bf16], k: usize, store: F) {
        let mut store = store;
        let rows = x.len() / k;
        // A weight row that meets several rows is worth widening once.
        let mut wide = vec![0.0; if rows > 1 { k } else { 0 }];
        for (c, w) in weight.chunks_exact(k).enumerate() {
            if rows == 1 {
                store(0, c, dot(x, w));
                continue;
            }
            widen_row(w, &mut wide);
            let mut pairs = x.chunks_exact(2 * k);
            for (pair, x) in pairs.by_ref().enumerate() {
                let [first, second] = dot_two([&x[..k], &x[k..]], &wide);
                store(2 * pair, c, first);
                store(2 * pair + 1, c, second);
            }
            for x in pairs.remainder().chunks_exact(k) {
                store(rows - 1, c, dot(x, w));
            }
        }
    }
}

/// Columns `columns` of a linear layer: `out[r]` gets those of input row `r`.
pub fn project(
    level: Level,
    weights: Weights<'_>,
    input: &Input,
    k: usize,
    columns: Range<usize>,
    out: &mut [&mut [bf16]],
) {
    let part = columns.start * k..columns.end * k;
    match (weights, input) {
        (Weights::Bf16(weight), Input::Wide(x)) => {
            dot_wide(level, x, &weight[part], k, |row, c, sum| {
                out[row][c] = round_bf16(sum);
            });
        }
        (Weights::W8A8(weight, weight_scale), Input::Codes(codes, scales)) => {
            let weight_scale = &weight_scale[columns];
            dot_codes(level, codes, &weight[part], |row, c, acc| {
                out[row][c] = round_bf16((acc as f32 * scales[row]) * weight_scale[c]);
            });
        }
        _ => unreachable!("the form of the input is chosen by the weights"),
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
        project(pool.level, weights, &input, k, columns, &mut tile.rows);
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
        Input::widen(pool.level, row_slices(x, k, rows))
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
        Input::codes(
            pool.level,
            k,
            rows.map(|r| (&codes[r * k..][..k], scale[r])),
        )
    });
    memory.put(op.out, out);
}

/// The i32 sums of one rank.
pub fn run_partial(op: &LinearW8A8Partial, pool: &Pool, memory: &mut Memory<'_>) {
    let mut acc = memory.take(op.acc);
    let [n, k] = memory.dims(op.weight);
    let (codes, weight) = (memory.get(op.codes), memory.get(op.weight));
    let work = acc.len().saturating_mul(k);
    pool.each(work, linear_tiles(pool, work, &mut acc, n), |tile| {
        let Tile {
            row,
            column,
            mut rows,
        } = tile;
        let mut input = Codes::new(k);
        for codes in row_slices(codes, k, row..row + rows.len()) {
            input.push(pool.level, |out| out.copy_from_slice(codes));
        }
        let columns = column..column + rows[0].len();
        let weight = &weight[columns.start * k..columns.end * k];
        dot_codes(pool.level, &input, weight, |row, c, acc| rows[row][c] = acc);
    });
    memory.put(op.acc, acc);
}
