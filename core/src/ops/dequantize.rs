//! The W8A8 epilogue apart from its sum.

use crate::buffer::BufferTable;
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::bf16;
use alloc::vec::Vec;

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

    fn check(&self, _buffers: &BufferTable) -> Result<(), LaunchError> {
        unimplemented!()
    }

    fn run(&self, _memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        unimplemented!()
    }
}
