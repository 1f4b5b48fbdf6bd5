//! RMS norm with a SiLU gate.

use crate::buffer::BufferTable;
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::bf16;
use alloc::vec::Vec;

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

    fn check(&self, _buffers: &BufferTable) -> Result<(), LaunchError> {
        unimplemented!()
    }

    fn run(&self, _memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        unimplemented!()
    }
}
