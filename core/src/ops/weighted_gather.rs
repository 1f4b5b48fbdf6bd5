//! Weighted sum of the experts of each token.

use crate::buffer::BufferTable;
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::bf16;
use alloc::vec::Vec;

operation! {
    /// f32 sum in top-k slot order, one rounding.
    pub struct WeightedGather {
        /// bf16 `[P, H]`: expert rows
        read y: bf16,
        /// u32 `[P]`
        read row_of_slot: u32,
        /// f32 `[T, k]`
        read weights: f32,
        /// bf16 `[T, H]`
        write out: bf16,
        ;
    }
}

impl Operation for WeightedGather {
    const NAME: &'static str = "weighted_gather";

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
