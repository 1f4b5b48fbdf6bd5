//! Groups token-expert pairs by expert.

use crate::buffer::BufferTable;
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use alloc::vec::Vec;

operation! {
    /// A stable counting sort of the pairs `slot = t * k + rank` by expert.
    pub struct ExpertPrologue {
        /// u32 `[T, k]`: `NONE` pairs are left out
        read ids: u32,
        /// u32 `[E + 1]`: rows of expert `e` are `offsets[e]..offsets[e + 1]`
        write offsets: u32,
        /// u32 `[P]`: `NONE` past the last row
        write slot_of_row: u32,
        /// u32 `[P]`: the inverse, `NONE` for a left-out pair
        write row_of_slot: u32,
        ;
    }
}

impl Operation for ExpertPrologue {
    const NAME: &'static str = "expert_prologue";

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
