//! The W8A8 epilogue apart from its sum.
//!
//! ```text
//! out[m,n] = bf16((f32(acc[m,n]) * scale[m]) * weight_scale[n])
//! ```
//!
//! `f32(acc)` rounds to nearest even above 2^24; two f32 products in this order; one rounding to
//! bf16. The order of the factors is part of the contract: the row's scale first.
//!
//! Source: vLLM `triton_scaled_mm` (the same order and rounding); oneDNN's s8 linear gives the same
//! bytes.

use crate::buffer::{BufferError, BufferTable};
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::{bf16, round_bf16};
use alloc::vec::Vec;

/// Scales one complete sum.
#[inline]
pub fn dequantize(acc: i32, scale: f32, weight_scale: f32) -> bf16 {
    round_bf16((acc as f32 * scale) * weight_scale)
}

operation! {
    /// Scales i32 sums once they are complete.
    pub struct Dequantize {
        /// i32 `[M, N]`
        read acc: i32,
        /// f32 `[M]`
        read scale: f32,
        /// f32 `[N]`
        read weight_scale: f32,
        /// bf16 `[M, N]`
        write out: bf16,
        ;
    }
}

impl Operation for Dequantize {
    const NAME: &'static str = "dequantize";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        check_dequantize(self, buffers).map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let mut out = memory.take(self.out);
        let [_, n] = memory.dims(self.acc);
        let weight_scale = memory.get(self.weight_scale);
        let rows = memory
            .get(self.acc)
            .chunks_exact(n)
            .zip(memory.get(self.scale));
        for ((acc, &scale), out) in rows.zip(out.chunks_exact_mut(n)) {
            for ((out, &acc), &weight_scale) in out.iter_mut().zip(acc).zip(weight_scale) {
                *out = dequantize(acc, scale, weight_scale);
            }
        }
        memory.put(self.out, out);
        Ok(())
    }
}

fn check_dequantize(op: &Dequantize, buffers: &BufferTable) -> Result<(), BufferError> {
    let [rows, n] = buffers.dims(op.acc)?;
    if n == 0 {
        return Err(buffers.shape_error(op.acc, "[M, N], N not 0"));
    }
    buffers.expect(op.scale, &[rows])?;
    buffers.expect(op.weight_scale, &[n])?;
    buffers.expect(op.out, &[rows, n])
}
