//! Exact dot products of s8 codes: fast because a tile of several rows by several weight rows keeps
//! all its sums in registers, and because sums of integers may be taken in any order.
//!
//! | level | a step | why it is exact |
//! |---|---|---|
//! | portable, avx2 | widened to i16, multiplied and added in pairs into i32 | products of two s8 fit |
//! | avx512-vnni | `w + 128` as u8 times `a`, four terms into i32 | 128 * sum(a) is taken off again, modulo 2^32 |

use crate::arena::{Bump, zeros};
use crate::level::{Kind, Level, per_level};
use crate::prefetch::prefetch;
use std::ops::Range;

/// Rows of codes for the inner loops, each `width` long.
pub struct Codes<'b> {
    codes: &'b mut [i8],
    /// Sum of each row.
    sums: &'b mut [i32],
    rows: usize,
    /// The codes widened, where the level multiplies them so.
    wide: &'b mut [i16],
    width: usize,
}

impl<'b> Codes<'b> {
    /// Room for `rows` rows of this width, to be multiplied at this level.
    pub fn room(arena: &'b Bump, level: Level, rows: usize, width: usize) -> Codes<'b> {
        let wide = if wants_wide(level) { rows * width } else { 0 };
        Codes {
            codes: zeros(arena, rows * width),
            sums: zeros(arena, rows),
            rows: 0,
            wide: arena.alloc_slice_fill_copy(wide, 0),
            width,
        }
    }

    /// Forgets all rows.
    pub fn clear(&mut self) {
        self.rows = 0;
    }

    /// Adds a row that `fill` writes.
    pub fn push<R>(&mut self, level: Level, fill: impl FnOnce(&mut [i8]) -> R) -> R {
        let row = &mut self.codes[self.rows * self.width..][..self.width];
        let result = fill(row);
        self.sums[self.rows] = sum(level, row);
        if let Some(wide) = self.wide.get_mut(self.rows * self.width..) {
            widen(level, row, wide);
        }
        self.rows += 1;
        result
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// All rows, one after the other.
    pub fn all(&self) -> &[i8] {
        &self.codes[..self.rows * self.width]
    }
}

/// Whether a level multiplies widened codes.
fn wants_wide(level: Level) -> bool {
    match level.0 {
        #[cfg(target_arch = "x86_64")]
        Kind::Avx2 => true,
        _ => false,
    }
}

per_level! {
    fn sum(codes: &[i8]) -> i32 {
        codes.iter().map(|&code| i32::from(code)).sum()
    }

    fn widen(codes: &[i8], wide: &mut [i16]) {
        for (wide, &code) in wide.iter_mut().zip(codes) {
            *wide = i16::from(code);
        }
    }
}

/// Sums of `codes` with each of the weight rows in `weight`, handed out as `(row, weight row, sum)`.
pub fn dot_codes(
    level: Level,
    codes: &Codes<'_>,
    weight: &[i8],
    store: impl FnMut(usize, usize, i32),
) {
    match level.0 {
        #[cfg(target_arch = "x86_64")]
        Kind::Avx2 => x86::dot_codes_avx2(level, codes, weight, store),
        #[cfg(target_arch = "x86_64")]
        Kind::Avx512Vnni => x86::dot_codes_vnni(level, codes, weight, store),
        _ => dot_pairs(level, codes, weight, store),
    }
}

per_level! {
    fn dot_pairs[F: FnMut(usize, usize, i32)][F](codes: &Codes<'_>, weight: &[i8], store: F) {
        walk::<Pairs, STEP, 4, 1>(codes, weight, store);
    }
}

/// Codes of a step of the portable form.
const STEP: usize = 64;

/// How a level multiplies `B` codes of a row with as many of a weight row.
trait DotStep<const B: usize>: Copy {
    /// How codes are read.
    type Code: Copy;
    /// Partial sums of one pair of rows.
    type Sums: Copy;
    /// A step of a weight row, prepared for all rows of the tile.
    type Weight: Copy;
    /// What is added to each weight; `BIAS * sum(codes)` is taken off the result.
    const BIAS: i32;

    fn zero() -> Self::Sums;
    fn prepare(weight: &[i8; B]) -> Self::Weight;
    fn add(sums: Self::Sums, weight: Self::Weight, codes: &[Self::Code; B]) -> Self::Sums;
    /// All rows as they are read.
    fn codes<'a>(codes: &'a Codes<'_>) -> &'a [Self::Code];
    fn total(sums: Self::Sums) -> i32;
    /// Four totals at once, where that is cheaper.
    #[inline(always)]
    fn totals(sums: [Self::Sums; 4]) -> [i32; 4] {
        sums.map(Self::total)
    }
}

/// Weight rows that stay in the second-level cache while all rows pass by.
const BLOCK: usize = 64;

/// Walks all rows and weight rows in tiles of `R` by `C`; what is left of either goes one by one. The
/// rows of a tile stay in the nearest cache for a block of weight rows.
#[inline(always)]
fn walk<S: DotStep<B>, const B: usize, const R: usize, const C: usize>(
    codes: &Codes<'_>,
    weight: &[i8],
    mut store: impl FnMut(usize, usize, i32),
) {
    let k = codes.width;
    if k == 0 {
        return;
    }
    let columns = weight.len() / k;
    let whole = codes.rows - codes.rows % R;
    for first in (0..columns).step_by(BLOCK) {
        let block = first..columns.min(first + BLOCK);
        for row in (0..whole).step_by(R) {
            walk_columns::<S, B, R, C>(codes, weight, row, block.clone(), &mut store);
        }
        for row in whole..codes.rows {
            walk_columns::<S, B, 1, C>(codes, weight, row, block.clone(), &mut store);
        }
    }
}

#[inline(always)]
fn walk_columns<S: DotStep<B>, const B: usize, const R: usize, const C: usize>(
    codes: &Codes<'_>,
    weight: &[i8],
    row: usize,
    columns: Range<usize>,
    store: &mut impl FnMut(usize, usize, i32),
) {
    let k = codes.width;
    let column = |c: usize| &weight[c * k..][..k];
    let whole = columns.end - columns.len() % C;
    for c in (columns.start..whole).step_by(C) {
        let weights: [&[i8]; C] = std::array::from_fn(|i| column(c + i));
        tile::<S, B, R, C>(codes, row, c, weights, store);
    }
    for c in whole..columns.end {
        tile::<S, B, R, 1>(codes, row, c, [column(c)], store);
    }
}

#[inline(always)]
fn tile<S: DotStep<B>, const B: usize, const R: usize, const C: usize>(
    codes: &Codes<'_>,
    row: usize,
    column: usize,
    weights: [&[i8]; C],
    store: &mut impl FnMut(usize, usize, i32),
) {
    let k = codes.width;
    let steps = k / B;
    let rows: [&[S::Code]; R] = std::array::from_fn(|r| &S::codes(codes)[(row + r) * k..][..k]);
    let row_steps: [&[[S::Code; B]]; R] = std::array::from_fn(|r| &rows[r].as_chunks().0[..steps]);
    let weight_steps: [&[[i8; B]]; C] = std::array::from_fn(|c| &weights[c].as_chunks().0[..steps]);
    let mut sums = [[S::zero(); R]; C];
    for i in 0..steps {
        for c in 0..C {
            // A single row is bound by memory: ask for the next tile.
            if R == 1 {
                prefetch(&weight_steps[c][i], C * k);
            }
            let weight = S::prepare(&weight_steps[c][i]);
            for r in 0..R {
                sums[c][r] = S::add(sums[c][r], weight, &row_steps[r][i]);
            }
        }
    }
    let totals = totals::<S, B, R, C>(sums);
    for (c, totals) in totals.into_iter().enumerate() {
        for (r, mut total) in totals.into_iter().enumerate() {
            let tail = &codes.codes[(row + r) * k..][steps * B..k];
            for (&w, &a) in weights[c][steps * B..].iter().zip(tail) {
                total = total.wrapping_add((i32::from(w) + S::BIAS) * i32::from(a));
            }
            let bias = S::BIAS.wrapping_mul(codes.sums[row + r]);
            store(row + r, column + c, total.wrapping_sub(bias));
        }
    }
}

/// Folds the partial sums, four pairs of rows at a time.
#[inline(always)]
fn totals<S: DotStep<B>, const B: usize, const R: usize, const C: usize>(
    sums: [[S::Sums; R]; C],
) -> [[i32; R]; C] {
    let at = |i: usize| sums[i / R][i % R];
    let mut totals = [[0; R]; C];
    let whole = R * C - R * C % 4;
    for i in (0..whole).step_by(4) {
        let four = S::totals([at(i), at(i + 1), at(i + 2), at(i + 3)]);
        for (j, total) in four.into_iter().enumerate() {
            totals[(i + j) / R][(i + j) % R] = total;
        }
    }
    for i in whole..R * C {
        totals[i / R][i % R] = S::total(at(i));
    }
    totals
}

/// The form for every processor: i16 products in pairs.
#[derive(Clone, Copy)]
struct Pairs;

impl DotStep<STEP> for Pairs {
    type Code = i8;
    type Sums = i32;
    type Weight = [i16; STEP];
    const BIAS: i32 = 0;

    #[inline(always)]
    fn zero() -> i32 {
        0
    }

    #[inline(always)]
    fn prepare(weight: &[i8; STEP]) -> [i16; STEP] {
        weight.map(i16::from)
    }

    #[inline(always)]
    fn add(sum: i32, weight: [i16; STEP], codes: &[i8; STEP]) -> i32 {
        let products = weight.iter().zip(codes);
        sum + products
            .map(|(&w, &a)| i32::from(w) * i32::from(a))
            .sum::<i32>()
    }

    #[inline(always)]
    fn codes<'a>(codes: &'a Codes<'_>) -> &'a [i8] {
        codes.codes
    }

    #[inline(always)]
    fn total(sum: i32) -> i32 {
        sum
    }
}

#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;
