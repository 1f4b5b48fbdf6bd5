//! Shared expert behind its gate, plus the routed sum.

use crate::buffer::BufferTable;
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::bf16;
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

    fn check(&self, _buffers: &BufferTable) -> Result<(), LaunchError> {
        unimplemented!()
    }

    fn run(&self, _memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        unimplemented!()
    }
}
