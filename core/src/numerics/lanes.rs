//! The one order in which floats are summed.
//!
//! Element `i` belongs to lane `i % 32`. Every lane starts at +0.0 and adds its elements in
//! ascending order; the 32 lane sums are then folded by the fixed tree of strides 16, 8, 4, 2, 1
//! (`lane[j] += lane[j + stride]`). 32 lanes are two AVX-512 or four AVX2 registers, one element
//! for each invocation of a 32-wide subgroup, two for each of a 16-wide one.

use super::bf16;

/// The number of interleaved lanes of every float reduction.
pub const LANES: usize = 32;

/// Folds the lane sums: the second half of every reduction.
#[inline(always)]
pub fn tree_sum(mut lanes: [f32; LANES]) -> f32 {
    let mut stride = LANES / 2;
    while stride > 0 {
        for j in 0..stride {
            lanes[j] += lanes[j + stride];
        }
        stride /= 2;
    }
    lanes[0]
}

/// Sums the terms in lane order. A skipped element and a +0.0 give the same bits, because a lane
/// starts at +0.0 and can never become -0.0: kernels may pad with zeros.
#[inline(always)]
pub fn lane_sum(terms: impl IntoIterator<Item = f32>) -> f32 {
    let mut lanes = [0.0f32; LANES];
    for (i, term) in terms.into_iter().enumerate() {
        lanes[i % LANES] += term;
    }
    tree_sum(lanes)
}

/// The lane-order sums of all columns of weighted rows: `sums[c] = lane_sum_i(factor_i * row_i[c])`.
pub fn lane_sum_rows<'a, E: Copy + Into<f32> + 'a>(
    terms: impl IntoIterator<Item = (f32, &'a [E])>,
    sums: &mut [f32],
) {
    let width = sums.len();
    let mut lanes = alloc::vec![0.0f32; LANES * width];
    for (i, (factor, row)) in terms.into_iter().enumerate() {
        assert_eq!(row.len(), width);
        let lane = &mut lanes[i % LANES * width..][..width];
        for (lane, &x) in lane.iter_mut().zip(row) {
            *lane += factor * x.into();
        }
    }
    let mut stride = LANES / 2;
    while stride > 0 {
        let (low, high) = lanes.split_at_mut(stride * width);
        for (low, high) in low.iter_mut().zip(high) {
            *low += *high;
        }
        stride /= 2;
    }
    sums.copy_from_slice(&lanes[..width]);
}

/// Dot product in lane order: each product is rounded, then added.
#[inline(always)]
pub fn lane_dot(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    lane_sum(a.iter().zip(b).map(|(&a, &b)| a * b))
}

/// [`lane_dot`] of bf16 operands, widened to f32 (exactly) before the product.
#[inline(always)]
pub fn lane_dot_bf16(a: &[bf16], b: &[bf16]) -> f32 {
    assert_eq!(a.len(), b.len());
    let mut lanes = [0.0f32; LANES];
    for (a, b) in a.chunks(LANES).zip(b.chunks(LANES)) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += a.to_f32() * b.to_f32();
        }
    }
    tree_sum(lanes)
}
