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

/// `out[c]` = sum in lane order over rows `0..n` of `term(row)[c]`: the lanes are rows here, the
/// vector registers hold columns.
///
/// Lanes come in the order in which the tree joins them, so that five partial sums are all there is
/// to keep.
#[inline(always)]
pub fn column_sum(n: usize, mut term: impl FnMut(usize) -> [f32; COLUMNS]) -> [f32; COLUMNS] {
    const LEVELS: usize = LANES.trailing_zeros() as usize;
    let mut waiting = [[0.0f32; COLUMNS]; LEVELS];
    let mut joined = [0.0f32; COLUMNS];
    for leaf in 0..LANES {
        let lane = leaf.reverse_bits() >> (usize::BITS as usize - LEVELS);
        joined = [0.0; COLUMNS];
        let mut row = lane;
        while row < n {
            let term = term(row);
            for c in 0..COLUMNS {
                joined[c] += term[c];
            }
            row += LANES;
        }
        let joins = leaf.trailing_ones() as usize;
        for waiting in &waiting[..joins] {
            for c in 0..COLUMNS {
                joined[c] = waiting[c] + joined[c];
            }
        }
        if joins < LEVELS {
            waiting[joins] = joined;
        }
    }
    joined
}
