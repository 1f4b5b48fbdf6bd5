//! Picks rows.

use crate::buffer::BufferTable;
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::bf16;
use alloc::vec::Vec;

operation! {
    /// Row `rows[r]`; `NONE` gives zeros.
    pub struct GatherRows {
        /// bf16 `[T, H]`
        read x: bf16,
        /// u32 `[R]`
        read rows: u32,
        /// bf16 `[R, H]`
        write out: bf16,
        ;
    }
}

impl Operation for GatherRows {
    const NAME: &'static str = "gather_rows";

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
