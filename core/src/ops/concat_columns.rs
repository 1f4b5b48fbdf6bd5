//! Joins two matrices by columns.

use crate::buffer::BufferTable;
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::bf16;
use alloc::vec::Vec;

operation! {
    /// `[a | b]`.
    pub struct ConcatColumns {
        /// bf16 `[T, A]`
        read a: bf16,
        /// bf16 `[T, B]`
        read b: bf16,
        /// bf16 `[T, A + B]`
        write out: bf16,
        ;
    }
}

impl Operation for ConcatColumns {
    const NAME: &'static str = "concat_columns";

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
