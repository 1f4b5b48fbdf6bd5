//! Fast because the sum of squares runs in 32 accumulators beside each other, and because a row is
//! read again for the product while it is still in the nearest cache.

use crate::level::per_level;
use crate::pool::Pool;
use crate::vector::{sum_of_squares_bf16, widen};
use layerlet_core::memory::Memory;
use layerlet_core::numerics::{bf16, round_bf16, rsqrt};
use layerlet_core::ops::{AddRmsNorm, RmsNorm, WeightOffset};

per_level! {
    /// Normalises one row.
    pub fn rms_norm_row(x: &[bf16], weight: &[f32], eps: f32, offset: WeightOffset, out: &mut [bf16]) {
        let scale = rsqrt(sum_of_squares_bf16(x) / x.len() as f32 + eps);
        for ((out, &x), &weight) in out.iter_mut().zip(x).zip(weight) {
            *out = round_bf16((widen(x) * scale) * offset.factor(weight));
        }
    }

    /// The residual addition.
    fn add_rows(x: &[bf16], delta: &[bf16], sum: &mut [bf16]) {
        for ((sum, &x), &delta) in sum.iter_mut().zip(x).zip(delta) {
            *sum = round_bf16(widen(x) + widen(delta));
        }
    }
}

/// The operation.
pub fn run(op: &RmsNorm, pool: &Pool, memory: &mut Memory<'_>) {
    let level = pool.level;
    let mut out = memory.take(op.out);
    let [width] = memory.dims(op.weight);
    let (x, weight) = (memory.get(op.x), memory.get(op.weight));
    pool.rows(2 * width, &mut out, width, |group, out| {
        let x = &x[group * op.stride..][..width];
        rms_norm_row(level, x, weight, op.eps, op.offset, out);
    });
    memory.put(op.out, out);
}

/// The residual addition and the norm of its stored sum.
pub fn run_add(op: &AddRmsNorm, pool: &Pool, memory: &mut Memory<'_>) {
    let level = pool.level;
    let (mut sum, mut out) = (memory.take(op.sum), memory.take(op.out));
    let [width] = memory.dims(op.weight);
    let (x, delta, weight) = (
        memory.get(op.x),
        memory.get(op.delta),
        memory.get(op.weight),
    );
    let work = 3 * out.len();
    let rows = out.len().checked_div(width).unwrap_or(0);
    let block = width * rows.div_ceil(pool.jobs_for(work)).max(1);
    let inputs = x.chunks(block).zip(delta.chunks(block));
    let outputs = sum.chunks_mut(block).zip(out.chunks_mut(block));
    pool.each(
        work,
        pool.list(inputs.zip(outputs)),
        |((x, delta), (sum, out))| {
            add_rows(level, x, delta, sum);
            for (sum, out) in sum.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
                rms_norm_row(level, sum, weight, op.eps, op.offset, out);
            }
        },
    );
    memory.put(op.sum, sum);
    memory.put(op.out, out);
}
