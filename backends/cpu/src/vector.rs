//! The few inner loops that everything else is made of, written so that the compiler turns them
//! into vector code: 32 accumulators beside each other are the contract's 32 lanes.
//!
//! All are `#[inline(always)]`, so that a function made by `per_level!` compiles them with its
//! instructions.

use crate::exact_products;
use crate::prefetch::prefetch;
use layerlet_core::numerics::{LANES, bf16, tree_sum};

/// bf16 to f32: exact, sixteen zero bits below.
#[inline(always)]
pub fn widen(x: bf16) -> f32 {
    f32::from_bits(u32::from(x.to_bits()) << 16)
}

/// Widens a row.
#[inline(always)]
pub fn widen_row(x: &[bf16], out: &mut [f32]) {
    for (out, &x) in out.iter_mut().zip(x) {
        *out = widen(x);
    }
}

/// Sum over `0..n` in lane order of terms that two slices give.
#[inline(always)]
fn lane_fold<A, B>(a: &[A], b: &[B], term: impl Fn(&A, &B) -> f32) -> f32 {
    lane_fold_touching(a, b, term, |_| ())
}

/// The same; `touch` sees every 32 elements of `b` first.
#[inline(always)]
fn lane_fold_touching<A, B>(
    a: &[A],
    b: &[B],
    term: impl Fn(&A, &B) -> f32,
    touch: impl Fn(&[B]),
) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (a_chunks, a_tail) = a.as_chunks::<LANES>();
    let (b_chunks, b_tail) = b.as_chunks::<LANES>();
    for (a, b) in a_chunks.iter().zip(b_chunks) {
        touch(b);
        for j in 0..LANES {
            lanes[j] += term(&a[j], &b[j]);
        }
    }
    for (lane, (a, b)) in lanes.iter_mut().zip(a_tail.iter().zip(b_tail)) {
        *lane += term(a, b);
    }
    tree_sum(lanes)
}

/// Dot product in lane order of a widened row and a bf16 row.
#[inline(always)]
pub fn dot(x: &[f32], w: &[bf16]) -> f32 {
    lane_fold(x, w, |x, &w| x * widen(w))
}

/// The same, asking for the weight row behind this one: 32 elements are a cache line.
#[inline(always)]
pub fn dot_streaming(x: &[f32], w: &[bf16]) -> f32 {
    let row = size_of_val(w);
    lane_fold_touching(x, w, |x, &w| x * widen(w), |w| prefetch(w, row))
}

/// Dot products in lane order of two widened rows with a third. `FUSED` adds with fma: only for rows
/// that [`exact_products::fits_fma`].
#[inline(always)]
pub fn dot_two<const FUSED: bool>(x: [&[f32]; 2], w: &[f32]) -> [f32; 2] {
    let add = exact_products::multiply_add::<FUSED>;
    // Two arrays, not one of two: the compiler keeps each in registers.
    let (mut first, mut second) = ([0.0f32; LANES], [0.0f32; LANES]);
    let (w_chunks, w_tail) = w.as_chunks::<LANES>();
    let x_chunks = x.map(|x| x.as_chunks::<LANES>().0.iter());
    let [x_first, x_second] = x_chunks;
    for (w, (x_first, x_second)) in w_chunks.iter().zip(x_first.zip(x_second)) {
        for j in 0..LANES {
            first[j] = add(first[j], x_first[j], w[j]);
            second[j] = add(second[j], x_second[j], w[j]);
        }
    }
    let done = w.len() - w_tail.len();
    for (lanes, x) in [&mut first, &mut second].into_iter().zip(x) {
        for (lane, (&x, &w)) in lanes.iter_mut().zip(x[done..].iter().zip(w_tail)) {
            *lane = add(*lane, x, w);
        }
    }
    [tree_sum(first), tree_sum(second)]
}

/// Sum in lane order.
#[inline(always)]
pub fn sum(x: &[f32]) -> f32 {
    lane_fold(x, x, |x, _| *x)
}

/// Sum of squares in lane order.
#[inline(always)]
pub fn sum_of_squares(x: &[f32]) -> f32 {
    lane_fold(x, x, |x, _| x * x)
}

/// Sum of squares in lane order of a bf16 row.
#[inline(always)]
pub fn sum_of_squares_bf16(x: &[bf16]) -> f32 {
    lane_fold(x, x, |&x, _| widen(x) * widen(x))
}

/// Columns that [`column_sum`] carries beside each other.
pub const COLUMNS: usize = 16;

/// The terms of a [`column_sum`]. A trait and not a closure, so that it can be `#[inline(always)]`.
pub trait Terms {
    /// The terms of one row.
    fn row(&mut self, row: usize) -> [f32; COLUMNS];
}

/// `out[c]` = sum in lane order over rows `0..n` of `terms.row(i)[c]`: the lanes are rows here, the
/// vector registers hold columns.
///
/// Four lanes that the tree joins first run side by side; the fours come in the order in which it
/// joins them, so that three partial sums are all there is to keep.
#[inline(always)]
pub fn column_sum(n: usize, terms: &mut impl Terms) -> [f32; COLUMNS] {
    const FIRST: [usize; 8] = [0, 4, 2, 6, 1, 5, 3, 7];
    let mut waiting = [[0.0f32; COLUMNS]; 3];
    for (i, lane) in FIRST.into_iter().enumerate() {
        let mut joined = four_lanes(n, lane, terms);
        let joins = i.trailing_ones() as usize;
        for waiting in &waiting[..joins] {
            joined = add(*waiting, joined);
        }
        match waiting.get_mut(joins) {
            Some(waiting) => *waiting = joined,
            None => return joined,
        }
    }
    unreachable!("the last four join everything")
}

/// Lanes `lane`, + 16, + 8, + 24, joined.
#[inline(always)]
fn four_lanes(n: usize, lane: usize, terms: &mut impl Terms) -> [f32; COLUMNS] {
    let zero = [0.0; COLUMNS];
    let (mut a, mut b, mut c, mut d) = (zero, zero, zero, zero);
    let mut row = lane;
    while row + 24 < n {
        a = add(a, terms.row(row));
        b = add(b, terms.row(row + 16));
        c = add(c, terms.row(row + 8));
        d = add(d, terms.row(row + 24));
        row += LANES;
    }
    for (sum, row) in [(&mut a, row), (&mut c, row + 8), (&mut b, row + 16)] {
        if row < n {
            *sum = add(*sum, terms.row(row));
        }
    }
    add(add(a, b), add(c, d))
}

#[inline(always)]
fn add(mut a: [f32; COLUMNS], b: [f32; COLUMNS]) -> [f32; COLUMNS] {
    for (a, b) in a.iter_mut().zip(b) {
        *a += b;
    }
    a
}
