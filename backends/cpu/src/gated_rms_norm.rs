//! Fast because a head's row is read again for the product while it is still in registers' reach,
//! and because the gate's exp is straight-line code.

use crate::level::per_level;
use crate::pool::Pool;
use crate::vector::{sum_of_squares_bf16, widen};
use layerlet_core::memory::Memory;
use layerlet_core::numerics::{bf16, round_bf16, rsqrt, silu};
use layerlet_core::ops::GatedRmsNorm;

per_level! {
    /// One value head.
    pub fn gated_rms_norm_row(x: &[bf16], gate: &[bf16], weight: &[f32], eps: f32, out: &mut [bf16]) {
        let scale = rsqrt(sum_of_squares_bf16(x) / x.len() as f32 + eps);
        for (((out, &x), &gate), &weight) in out.iter_mut().zip(x).zip(gate).zip(weight) {
            *out = round_bf16(((widen(x) * scale) * weight) * silu(widen(gate)));
        }
    }
}

/// The operation.
pub fn run(op: &GatedRmsNorm, pool: &Pool, memory: &mut Memory<'_>) {
    let level = pool.level;
    let mut out = memory.take(op.out);
    let [width] = memory.dims(op.weight);
    let (x, gate, weight) = (memory.get(op.x), memory.get(op.gate), memory.get(op.weight));
    pool.rows(20 * width, &mut out, width, |head, out| {
        let at = head * width;
        gated_rms_norm_row(
            level,
            &x[at..][..width],
            &gate[at..][..width],
            weight,
            op.eps,
            out,
        );
    });
    memory.put(op.out, out);
}
