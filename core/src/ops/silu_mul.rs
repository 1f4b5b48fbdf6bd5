//! `silu(gate) * up`.
//!
//! ```text
//! out[m, i] = bf16(bf16(silu(gate_up[m, i])) * gate_up[m, I + i])
//! ```
//!
//! bf16 in; silu in f32 (`x / (1 + exp(-x))`), rounded to bf16; the product of the two bf16 in f32, rounded to bf16:
//! two roundings. A gate of -inf gives NaN (see [`silu`]); one below -88.73 gives -0.
//!
//! The halves stand side by side in a row, gate first: the order in which a fused gate/up projection stores its outputs.
//!
//! Source: transformers' `Qwen3_5MoeExperts` and MLP in eager mode, vLLM's `silu_and_mul`: all round twice.

use crate::buffer::{BufferError, BufferTable};
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::{bf16, round_bf16, silu};
use alloc::vec::Vec;

operation! {
    /// Both halves of a fused gate/up projection.
    pub struct SiluMul {
        /// bf16 `[M, 2 * I]`: gate, then up
        read gate_up: bf16,
        /// bf16 `[M, I]`
        write out: bf16,
        ;
    }
}

impl Operation for SiluMul {
    const NAME: &'static str = "silu_mul";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        let check = || -> Result<(), BufferError> {
            let [rows, width] = buffers.dims(self.out)?;
            if width == 0 {
                return Err(buffers.shape_error(self.out, "[M, I], I not 0"));
            }
            buffers.expect(self.gate_up, &[rows, 2 * width])?;
            Ok(())
        };
        check().map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let mut out = memory.take(self.out);
        let [_, width] = memory.dims(self.out);
        let rows = memory.get(self.gate_up).chunks_exact(2 * width);
        for (gate_up, out) in rows.zip(out.chunks_exact_mut(width)) {
            silu_mul_row(gate_up, out);
        }
        memory.put(self.out, out);
        Ok(())
    }
}

/// One row: gate, then up.
pub fn silu_mul_row(gate_up: &[bf16], out: &mut [bf16]) {
    let (gate, up) = gate_up.split_at(out.len());
    for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
        let activated = round_bf16(silu(gate.to_f32()));
        *out = round_bf16(activated.to_f32() * up.to_f32());
    }
}
