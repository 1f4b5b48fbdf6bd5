//! Embedding lookup.

use crate::buffer::BufferTable;
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::bf16;
use alloc::vec::Vec;

operation! {
    /// Row `token_ids[t]` of the table; inert rows become zero.
    pub struct Embedding {
        /// u32 `[T]`
        read token_ids: u32,
        /// u32 `[T]`: sequence of the row, `NONE` for an inert row
        read row_seq: u32,
        /// bf16 `[V, H]`
        read table: bf16,
        /// bf16 `[T, H]`
        write out: bf16,
        ;
    }
}

impl Operation for Embedding {
    const NAME: &'static str = "embedding";

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
