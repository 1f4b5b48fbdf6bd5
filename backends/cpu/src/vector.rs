//! The few inner loops that everything else is made of, written so that the compiler turns them
//! into vector code: 32 accumulators beside each other are the contract's 32 lanes.

use layerlet_core::numerics::{LANES, bf16, tree_sum};

/// bf16 to f32: exact, sixteen zero bits below.
#[inline(always)]
pub fn widen(x: bf16) -> f32 {
    f32::from_bits(u32::from(x.to_bits()) << 16)
}

/// Widens a row.
pub fn widen_row(x: &[bf16], out: &mut Vec<f32>) {
    out.extend(x.iter().map(|&x| widen(x)));
}

/// Sum over `0..n` in lane order of terms that two slices give.
#[inline(always)]
fn lane_fold<A, B>(a: &[A], b: &[B], term: impl Fn(&A, &B) -> f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (a_chunks, a_tail) = a.as_chunks::<LANES>();
    let (b_chunks, b_tail) = b.as_chunks::<LANES>();
    for (a, b) in a_chunks.iter().zip(b_chunks) {
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
pub fn dot(x: &[f32], w: &[bf16]) -> f32 {
    lane_fold(x, w, |x, &w| x * widen(w))
}

/// Sum in lane order.
pub fn sum(x: &[f32]) -> f32 {
    lane_fold(x, x, |x, _| *x)
}

/// Sum of squares in lane order.
pub fn sum_of_squares(x: &[f32]) -> f32 {
    lane_fold(x, x, |x, _| x * x)
}

/// Sum of squares in lane order of a bf16 row.
pub fn sum_of_squares_bf16(x: &[bf16]) -> f32 {
    lane_fold(x, x, |&x, _| widen(x) * widen(x))
}

/// Exact dot products of one weight row with `R` rows of codes: the codes are 16 bits wide already,
/// so that the loop is multiply-add of i16 pairs into i32.
pub fn dot_codes<const R: usize>(rows: [&[i16]; R], w: &[i8]) -> [i32; R] {
    const STEP: usize = 64;
    let mut acc = [0i32; R];
    let (chunks, tail) = w.as_chunks::<STEP>();
    for (i, w) in chunks.iter().enumerate() {
        let w: [i16; STEP] = std::array::from_fn(|j| i16::from(w[j]));
        for (acc, x) in acc.iter_mut().zip(rows) {
            let x = &x[i * STEP..][..STEP];
            *acc += x
                .iter()
                .zip(&w)
                .map(|(&x, &w)| i32::from(x) * i32::from(w))
                .sum::<i32>();
        }
    }
    let done = chunks.len() * STEP;
    for (acc, x) in acc.iter_mut().zip(rows) {
        let tail = x[done..].iter().zip(tail);
        *acc += tail
            .map(|(&x, &w)| i32::from(x) * i32::from(w))
            .sum::<i32>();
    }
    acc
}

/// Columns that [`column_sum`] carries beside each other.
pub const COLUMNS: usize = 16;

/// `out[c]` = sum in lane order over rows `0..n` of `term(row)[c]`: the lanes are rows here, the
/// vector registers hold columns.
#[inline(always)]
pub fn column_sum(n: usize, mut term: impl FnMut(usize) -> [f32; COLUMNS]) -> [f32; COLUMNS] {
    let mut lanes = [[0.0f32; COLUMNS]; LANES];
    for (lane, sum) in lanes.iter_mut().enumerate() {
        let mut row = lane;
        while row < n {
            let term = term(row);
            for c in 0..COLUMNS {
                sum[c] += term[c];
            }
            row += LANES;
        }
    }
    let mut stride = LANES / 2;
    while stride > 0 {
        let (low, high) = lanes.split_at_mut(stride);
        for (low, high) in low.iter_mut().zip(high) {
            for c in 0..COLUMNS {
                low[c] += high[c];
            }
        }
        stride /= 2;
    }
    lanes[0]
}
