//! Shared expert behind its gate, plus the routed sum.
//!
//! ```text
//! out = bf16(bf16(bf16(sigmoid(gate)) * shared) + routed)
//! ```
//!
//! bf16 in; f32 inside each step; three roundings to bf16. One gate for a whole row, from its logit in bf16.
//! The residual addition is the next norm's ([`super::AddRmsNorm`]).
//!
//! Source: transformers' `Qwen3_5MoeSparseMoeBlock` (the routed sum is already bf16 when the shared expert is added),
//! whose roundings vLLM shares.

use crate::buffer::{BufferError, BufferTable};
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::{bf16, round_bf16, sigmoid};
use alloc::vec::Vec;

operation! {
    /// `bf16(bf16(bf16(sigmoid(gate)) * shared) + routed)`.
    pub struct SharedExpert {
        /// bf16 `[T, H]`
        read shared: bf16,
        /// bf16 `[T, 1]`: gate logit
        read gate: bf16,
        /// bf16 `[T, H]`
        read routed: bf16,
        /// bf16 `[T, H]`
        write out: bf16,
        ;
    }
}

impl Operation for SharedExpert {
    const NAME: &'static str = "shared_expert";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        let check = || -> Result<(), BufferError> {
            let [rows, width] = buffers.dims(self.out)?;
            if width == 0 {
                return Err(buffers.shape_error(self.out, "[T, H], H not 0"));
            }
            buffers.expect(self.shared, &[rows, width])?;
            buffers.expect(self.gate, &[rows, 1])?;
            buffers.expect(self.routed, &[rows, width])
        };
        check().map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let mut out = memory.take(self.out);
        let [_, width] = memory.dims(self.out);
        let (shared, routed) = (memory.get(self.shared), memory.get(self.routed));
        for (row, &gate) in memory.get(self.gate).iter().enumerate() {
            let span = row * width..(row + 1) * width;
            shared_expert_row(
                &shared[span.clone()],
                gate,
                &routed[span.clone()],
                &mut out[span],
            );
        }
        memory.put(self.out, out);
        Ok(())
    }
}

/// One row.
pub fn shared_expert_row(shared: &[bf16], gate: bf16, routed: &[bf16], out: &mut [bf16]) {
    let gate = round_bf16(sigmoid(gate.to_f32())).to_f32();
    for ((out, shared), routed) in out.iter_mut().zip(shared).zip(routed) {
        let gated = round_bf16(gate * shared.to_f32());
        *out = round_bf16(gated.to_f32() + routed.to_f32());
    }
}
