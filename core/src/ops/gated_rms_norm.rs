//! RMS norm with a SiLU gate, over each value head of the delta rule's output.
//!
//! ```text
//! y = ((x * rsqrt(mean(x^2) + eps)) * w) * silu(gate)
//! ```
//!
//! bf16 inputs widened to f32, f32 weight (plain, not one plus it), everything in f32: squares and their
//! lane-order sum, `/ Dv`, `+ eps`, rsqrt, the three products in the order written; one rounding to bf16.
//!
//! Errors: `Dv` that does not divide the columns; an eps that is not a positive finite number.
//!
//! Source: transformers `Qwen3_5MoeRMSNormGated`, which rounds to bf16 between norm and weight, and vLLM's
//! layernorm_guard, which does not. vLLM's staging is ours: one rounding less.

use crate::buffer::{BufferError, BufferTable};
use crate::launch::{LaunchError, Operand, Operation, check_positive, operation};
use crate::memory::Memory;
use crate::numerics::{bf16, lane_sum, round_bf16, rsqrt, silu};
use alloc::{format, vec::Vec};

/// Normalises and gates one head.
pub fn gated_rms_norm_row(x: &[bf16], gate: &[bf16], weight: &[f32], eps: f32, out: &mut [bf16]) {
    let mean = lane_sum(x.iter().map(|x| x.to_f32() * x.to_f32())) / x.len() as f32;
    let scale = rsqrt(mean + eps);
    for (((out, x), gate), &weight) in out.iter_mut().zip(x).zip(gate).zip(weight) {
        *out = round_bf16(((x.to_f32() * scale) * weight) * silu(gate.to_f32()));
    }
}

operation! {
    /// `(x * r) * w * silu(gate)` per value head.
    pub struct GatedRmsNorm {
        /// bf16 `[T, Hv * Dv]`
        read x: bf16,
        /// bf16 `[T, Hv * Dv]`
        read gate: bf16,
        /// f32 `[Dv]`
        read weight: f32,
        /// bf16 `[T, Hv * Dv]`
        write out: bf16,
        ;
        eps: f32,
    }
}

impl Operation for GatedRmsNorm {
    const NAME: &'static str = "gated_rms_norm";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        check_positive(Self::NAME, "eps", self.eps)?;
        check_gated_rms_norm(self, buffers).map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let mut out = memory.take(self.out);
        let weight = memory.get(self.weight);
        let width = weight.len();
        let heads = memory
            .get(self.x)
            .chunks_exact(width)
            .zip(memory.get(self.gate).chunks_exact(width));
        for ((x, gate), out) in heads.zip(out.chunks_exact_mut(width)) {
            gated_rms_norm_row(x, gate, weight, self.eps, out);
        }
        memory.put(self.out, out);
        Ok(())
    }
}

fn check_gated_rms_norm(op: &GatedRmsNorm, buffers: &BufferTable) -> Result<(), BufferError> {
    let [width] = buffers.dims(op.weight)?;
    let [rows, columns] = buffers.dims(op.x)?;
    if width == 0 || !columns.is_multiple_of(width) {
        return Err(buffers.shape_error(op.x, format!("[T, heads * {width}], {width} not 0")));
    }
    buffers.expect(op.gate, &[rows, columns])?;
    buffers.expect(op.out, &[rows, columns])
}
