//! `silu(gate) * up`.

use crate::buffer::BufferTable;
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::bf16;
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

    fn check(&self, _buffers: &BufferTable) -> Result<(), LaunchError> {
        unimplemented!()
    }

    fn run(&self, _memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        unimplemented!()
    }
}
