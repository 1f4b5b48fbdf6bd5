//! Greedy choice.

use crate::buffer::BufferTable;
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::bf16;
use alloc::vec::Vec;

operation! {
    /// Index of the largest logit, the lowest on ties; `NONE` for an inert row.
    pub struct Argmax {
        /// bf16 `[R, V]`
        read logits: bf16,
        /// u32 `[R]`
        read out_rows: u32,
        /// u32 `[R]`
        write tokens: u32,
        ;
    }
}

impl Operation for Argmax {
    const NAME: &'static str = "argmax";

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
