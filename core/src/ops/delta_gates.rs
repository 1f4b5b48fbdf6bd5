//! Decay and write strength of the delta rule.

use crate::buffer::BufferTable;
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::bf16;
use alloc::vec::Vec;

operation! {
    /// One decay and one beta per row and value head.
    pub struct DeltaGates {
        /// bf16 `[T, Hv]`
        read a: bf16,
        /// bf16 `[T, Hv]`
        read b: bf16,
        /// f32 `[Hv]`
        read a_log: f32,
        /// f32 `[Hv]`
        read dt_bias: f32,
        /// f32 `[T, Hv]`
        write decay: f32,
        /// f32 `[T, Hv]`
        write beta: f32,
        ;
    }
}

impl Operation for DeltaGates {
    const NAME: &'static str = "delta_gates";

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
