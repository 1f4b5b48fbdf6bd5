//! Appends keys and values to their pages.

use crate::buffer::BufferTable;
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::bf16;
use alloc::vec::Vec;

operation! {
    /// Writes each live row to the place its position has in the page table.
    pub struct KvAppend {
        /// bf16 `[T, G * D]`
        read k: bf16,
        /// bf16 `[T, G * D]`
        read v: bf16,
        /// u32 `[T]`
        read positions: u32,
        /// u32 `[T]`
        read row_seq: u32,
        /// u32 `[S, pages of a sequence]`
        read page_table: u32,
        /// bf16 `[pages, page size, G, D]`
        read_write k_cache: bf16,
        /// bf16 `[pages, page size, G, D]`
        read_write v_cache: bf16,
        ;
    }
}

impl Operation for KvAppend {
    const NAME: &'static str = "kv_append";

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
