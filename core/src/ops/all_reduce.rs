//! Sums and maxima over ranks.

use crate::buffer::BufferTable;
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use alloc::vec::Vec;

operation! {
    /// Maximum over ranks, NaN above all.
    pub struct AllReduceMax {
        /// f32 `[M]`
        read x: f32,
        /// f32 `[M]`
        write out: f32,
        ;
    }
}

impl Operation for AllReduceMax {
    const NAME: &'static str = "all_reduce_max";

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

operation! {
    /// Exact i32 sum over ranks.
    pub struct AllReduceSum {
        /// i32 `[M, N]`
        read x: i32,
        /// i32 `[M, N]`
        write out: i32,
        ;
    }
}

impl Operation for AllReduceSum {
    const NAME: &'static str = "all_reduce_sum";

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
