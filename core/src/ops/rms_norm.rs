//! RMS norm, and the residual addition in front of it.
//!
//! ```text
//! y = x * rsqrt(mean(x^2) + eps) * (1 + w)      WeightOffset::One  (every norm of the decoder layers)
//! y = x * rsqrt(mean(x^2) + eps) * w            WeightOffset::Zero
//! ```
//!
//! All in f32 from bf16 input: squares and their lane-order sum, `/ n`, `+ eps`, rsqrt, then
//! `(x * r) * (1 + w)` with `1 + w` rounded to f32; one rounding to bf16 at the end. (Rounding
//! between scale and weight as well is the field's classic fault: it changes bits.)
//!
//! [`AddRmsNorm`] first stores `sum = bf16(x + delta)` and normalises the *stored* sum, as
//! transformers does; vLLM's native path normalises the unrounded sum, which would make the result
//! depend on whether the addition was fused.
//!
//! Source: transformers `Qwen3_5MoeRMSNorm`.

use crate::buffer::BufferTable;
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::{bf16, lane_sum, round_bf16, rsqrt};
use alloc::{format, vec::Vec};
use serde::{Deserialize, Serialize};

/// What the stored weight is an offset from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WeightOffset {
    /// The factor is the weight.
    Zero,
    /// The factor is one plus the weight.
    One,
}

impl WeightOffset {
    /// The factor that a stored weight stands for.
    #[inline]
    pub fn factor(self, weight: f32) -> f32 {
        match self {
            WeightOffset::Zero => weight,
            WeightOffset::One => 1.0 + weight,
        }
    }
}

/// Normalises one row.
pub fn rms_norm_row(x: &[bf16], weight: &[f32], eps: f32, offset: WeightOffset, out: &mut [bf16]) {
    let mean = lane_sum(x.iter().map(|x| x.to_f32() * x.to_f32())) / x.len() as f32;
    let scale = rsqrt(mean + eps);
    for ((out, x), &weight) in out.iter_mut().zip(x).zip(weight) {
        *out = round_bf16((x.to_f32() * scale) * offset.factor(weight));
    }
}

operation! {
    /// Norms groups of `width` columns: the whole row (`groups = 1`), or each head of a projection.
    /// Group `g` of a row starts at column `g * stride`; the output has no gaps.
    pub struct RmsNorm {
        /// bf16 `[T, groups * stride]`
        read x: bf16,
        /// f32 `[width]`
        read weight: f32,
        /// bf16 `[T, groups * width]`
        write out: bf16,
        ;
        eps: f32,
        offset: WeightOffset,
        stride: usize,
    }
}

impl Operation for RmsNorm {
    const NAME: &'static str = "rms_norm";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        check_rms_norm(self, buffers).map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let mut out = memory.take(self.out);
        let [width] = memory.dims(self.weight);
        let (x, weight) = (memory.get(self.x), memory.get(self.weight));
        for (x, out) in x.chunks_exact(self.stride).zip(out.chunks_exact_mut(width)) {
            rms_norm_row(&x[..width], weight, self.eps, self.offset, out);
        }
        memory.put(self.out, out);
        Ok(())
    }
}

fn check_rms_norm(op: &RmsNorm, buffers: &BufferTable) -> Result<(), crate::buffer::BufferError> {
    let [width] = buffers.dims(op.weight)?;
    let [rows, columns] = buffers.dims(op.x)?;
    if width == 0 || op.stride < width || columns % op.stride != 0 {
        let expected = format!("[T, groups * {}], {width} used of each group", op.stride);
        return Err(buffers.shape_error(op.x, expected));
    }
    buffers.expect(op.out, &[rows, columns / op.stride * width])
}

operation! {
    /// Residual addition, then the norm of the stored sum.
    pub struct AddRmsNorm {
        /// bf16 `[T, H]`: the residual stream
        read x: bf16,
        /// bf16 `[T, H]`: what the layer adds
        read delta: bf16,
        /// f32 `[H]`
        read weight: f32,
        /// bf16 `[T, H]`: the new residual stream
        write sum: bf16,
        /// bf16 `[T, H]`
        write out: bf16,
        ;
        eps: f32,
        offset: WeightOffset,
    }
}

impl Operation for AddRmsNorm {
    const NAME: &'static str = "add_rms_norm";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        check_add_rms_norm(self, buffers).map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let (mut sum, mut out) = (memory.take(self.sum), memory.take(self.out));
        let (x, delta) = (memory.get(self.x), memory.get(self.delta));
        for ((sum, x), delta) in sum.iter_mut().zip(x).zip(delta) {
            *sum = round_bf16(x.to_f32() + delta.to_f32());
        }
        let weight = memory.get(self.weight);
        let width = weight.len();
        for (sum, out) in sum.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
            rms_norm_row(sum, weight, self.eps, self.offset, out);
        }
        memory.put(self.sum, sum);
        memory.put(self.out, out);
        Ok(())
    }
}

fn check_add_rms_norm(
    op: &AddRmsNorm,
    buffers: &BufferTable,
) -> Result<(), crate::buffer::BufferError> {
    let [rows, width] = buffers.dims(op.x)?;
    buffers.expect(op.delta, &[rows, width])?;
    buffers.expect(op.weight, &[width])?;
    buffers.expect(op.sum, &[rows, width])?;
    buffers.expect(op.out, &[rows, width])
}
