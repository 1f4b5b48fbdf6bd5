//! Fast because a tile's input rows are prepared once and then meet every weight row of the tile while
//! that row is in the nearest cache; threads get columns, so that each weight is read by one thread
//! and no sum is cut. The inner loops are [`dot_codes`] and, for bf16, [`crate::vector`].

use crate::arena::zeros;
use crate::dot_codes::{Codes, dot_codes};
use crate::exact_products::fits_fma;
use crate::level::{Level, per_level};
use crate::pool::Pool;
use crate::quantize_rows::quantize_row;
use crate::tiles::{Tile, tiles};
use crate::vector::{dot, dot_streaming, dot_two, widen_row};
use layerlet_core::memory::Memory;
use layerlet_core::numerics::{bf16, round_bf16};
use layerlet_core::ops::{LinearBf16, LinearW8A8, LinearW8A8Partial};
use std::ops::Range;

/// Input rows of a tile: as many as stay in the second-level cache.
pub const TILE_ROWS: usize = 64;

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

/// Which form of input rows some weights want.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// f32.
    Wide,
    /// Codes and scales.
    Codes,
}

impl Weights<'_> {
    /// The form that they are multiplied with.
    pub fn form(&self) -> Form {
        match self {
            Weights::Bf16(_) => Form::Wide,
            Weights::W8A8(..) => Form::Codes,
        }
    }
}

/// Input rows in the form in which the inner loops read them; each thread has its own.
pub struct Input<'b> {
    level: Level,
    form: Form,
    k: usize,
    rows: usize,
    /// bf16 rows, widened.
    wide: &'b mut [f32],
    /// Whether they are all [`fits_fma`].
    fits_fma: bool,
    /// Room for a widened weight row.
    weight: &'b mut [f32],
    codes: Codes<'b>,
    scales: &'b mut [f32],
}

impl<'b> Input<'b> {
    /// Room for `rows` rows of width `k`.
    pub fn room(pool: &'b Pool, form: Form, rows: usize, k: usize) -> Input<'b> {
        let (arena, wide) = (pool.arena(), form == Form::Wide);
        let (wide_rows, code_rows) = if wide { (rows, 0) } else { (0, rows) };
        Input {
            level: pool.level,
            form,
            k,
            rows: 0,
            wide: zeros(arena, wide_rows * k),
            fits_fma: true,
            weight: zeros(arena, wide_rows.min(1) * k),
            codes: Codes::room(arena, pool.level, code_rows, k),
            scales: zeros(arena, code_rows),
        }
    }

    /// Forgets all rows.
    pub fn clear(&mut self) {
        self.rows = 0;
        self.fits_fma = true;
        self.codes.clear();
    }

    /// Adds a bf16 row: widened, or quantised here.
    pub fn push(&mut self, row: &[bf16]) {
        match self.form {
            Form::Wide => {
                widen(
                    self.level,
                    row,
                    &mut self.wide[self.rows * self.k..][..self.k],
                );
                self.fits_fma &= all_fit(self.level, row);
            }
            Form::Codes => {
                let scale = self
                    .codes
                    .push(self.level, |out| quantize_row(self.level, row, out));
                self.scales[self.rows] = scale;
            }
        }
        self.rows += 1;
    }

    /// Adds a row of codes that somebody else computed.
    pub fn push_codes(&mut self, row: &[i8], scale: f32) {
        self.codes.push(self.level, |out| out.copy_from_slice(row));
        self.scales[self.rows] = scale;
        self.rows += 1;
    }

    /// Codes and scales of all rows; none where the form is another.
    pub fn quantised(&self) -> (&[i8], &[f32]) {
        (self.codes.all(), &self.scales[..self.codes.rows()])
    }
}

per_level! {
    fn widen(row: &[bf16], wide: &mut [f32]) {
        widen_row(row, wide);
    }

    fn all_fit(row: &[bf16]) -> bool {
        fits_fma(row)
    }

    /// Columns of a bf16 linear layer, handed out as `(row, column, sum)`. `wide` is room for a weight
    /// row, which is worth widening once if it meets several rows.
    fn dot_wide[F: FnMut(usize, usize, f32)][F](
        x: &[f32], weight: &[bf16], k: usize, fused: bool, wide: &mut [f32], store: F,
    ) {
        let mut store = store;
        let rows = x.len() / k;
        for (c, w) in weight.chunks_exact(k).enumerate() {
            if rows == 1 {
                store(0, c, dot_streaming(x, w));
                continue;
            }
            widen_row(w, wide);
            let fused = fused && fits_fma(w);
            let mut pairs = x.chunks_exact(2 * k);
            for (pair, x) in pairs.by_ref().enumerate() {
                let x = [&x[..k], &x[k..]];
                let [first, second] = match fused {
                    true => dot_two::<true>(x, wide),
                    false => dot_two::<false>(x, wide),
                };
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
    weights: Weights<'_>,
    input: &mut Input<'_>,
    columns: Range<usize>,
    out: &mut [&mut [bf16]],
) {
    assert_eq!((weights.form(), out.len()), (input.form, input.rows));
    let (k, level) = (input.k, input.level);
    let part = columns.start * k..columns.end * k;
    match weights {
        Weights::Bf16(weight) => {
            let x = &input.wide[..input.rows * k];
            // Where there is no fma instruction, the function that stands for it is slow.
            let fused = input.fits_fma && level > Level::PORTABLE;
            dot_wide(
                level,
                x,
                &weight[part],
                k,
                fused,
                input.weight,
                |row, c, sum| {
                    out[row][c] = round_bf16(sum);
                },
            );
        }
        Weights::W8A8(weight, weight_scale) => {
            let (weight_scale, scales) = (&weight_scale[columns], &input.scales);
            dot_codes(level, &input.codes, &weight[part], |row, c, acc| {
                out[row][c] = round_bf16((acc as f32 * scales[row]) * weight_scale[c]);
            });
        }
    }
}

/// The tiles into which an output `[M, N]` is cut, given its multiply-adds.
pub fn linear_tiles<'a, 'b, T>(
    pool: &'b Pool,
    work: usize,
    out: &'a mut [T],
    n: usize,
) -> &'b mut [Tile<'a, 'b, T>] {
    let blocks = out.len().div_ceil((TILE_ROWS * n).max(1));
    let columns = n.div_ceil(pool.jobs_for(work).div_ceil(blocks.max(1)));
    let columns = columns.max(1).next_multiple_of(COLUMN_STEP);
    pool.list(tiles(pool.arena(), out, n, TILE_ROWS, columns))
}

/// Rows of the largest tile of an output of so many.
pub fn tile_rows(rows: usize) -> usize {
    rows.min(TILE_ROWS)
}

/// A linear layer over width `k`, whose input rows `input` pushes.
pub fn linear(
    pool: &Pool,
    weights: Weights<'_>,
    k: usize,
    n: usize,
    out: &mut [bf16],
    input: impl Fn(Range<usize>, &mut Input<'_>) + Sync,
) {
    let work = out.len().saturating_mul(k);
    let rows = tile_rows(out.len().checked_div(n).unwrap_or(0));
    pool.each_with(
        work,
        linear_tiles(pool, work, out, n),
        || Input::room(pool, weights.form(), rows, k),
        |tile, own| {
            own.clear();
            input(tile.row..tile.row + tile.rows.len(), own);
            let columns = tile.column..tile.column + tile.width();
            project(weights, own, columns, tile.rows);
        },
    );
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
    linear(pool, weights, k, n, &mut out, |rows, input| {
        row_slices(x, k, rows).for_each(|row| input.push(row));
    });
    memory.put(op.out, out);
}

/// The W8A8 operation.
pub fn run_w8a8(op: &LinearW8A8, pool: &Pool, memory: &mut Memory<'_>) {
    let mut out = memory.take(op.out);
    let [n, k] = memory.dims(op.weight);
    let (codes, scale) = (memory.get(op.codes), memory.get(op.scale));
    let weights = Weights::W8A8(memory.get(op.weight), memory.get(op.weight_scale));
    linear(pool, weights, k, n, &mut out, |rows, input| {
        rows.for_each(|r| input.push_codes(&codes[r * k..][..k], scale[r]));
    });
    memory.put(op.out, out);
}

/// The i32 sums of one rank.
pub fn run_partial(op: &LinearW8A8Partial, pool: &Pool, memory: &mut Memory<'_>) {
    let level = pool.level;
    let mut acc = memory.take(op.acc);
    let [n, k] = memory.dims(op.weight);
    let (codes, weight) = (memory.get(op.codes), memory.get(op.weight));
    let work = acc.len().saturating_mul(k);
    let rows = tile_rows(memory.dims::<_, 2>(op.codes)[0]);
    pool.each_with(
        work,
        linear_tiles(pool, work, &mut acc, n),
        || Codes::room(pool.arena(), level, rows, k),
        |tile, input| {
            input.clear();
            for codes in row_slices(codes, k, tile.row..tile.row + tile.rows.len()) {
                input.push(level, |out| out.copy_from_slice(codes));
            }
            let columns = tile.column..tile.column + tile.width();
            let weight = &weight[columns.start * k..columns.end * k];
            dot_codes(level, input, weight, |row, c, acc| tile.rows[row][c] = acc);
        },
    );
    memory.put(op.acc, acc);
}
