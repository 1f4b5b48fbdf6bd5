//! Joins the columns that the ranks computed.

use crate::buffer::BufferTable;
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::bf16;
use alloc::vec::Vec;

operation! {
    /// Columns of all ranks in rank order.
    pub struct AllGatherColumns {
        /// bf16 `[M, N / ranks]`
        read x: bf16,
        /// bf16 `[M, N]`
        write out: bf16,
        ;
    }
}

impl Operation for AllGatherColumns {
    const NAME: &'static str = "all_gather_columns";

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
