//! Router: softmax, top-k, renormalised weights.

use crate::buffer::BufferTable;
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::bf16;
use alloc::vec::Vec;

operation! {
    /// Experts of each row, best first.
    pub struct RouterTopK {
        /// bf16 `[T, E]`
        read logits: bf16,
        /// u32 `[T]`: an inert row gets ids `NONE` and weights 0
        read row_seq: u32,
        /// u32 `[T, k]`
        write ids: u32,
        /// f32 `[T, k]`
        write weights: f32,
        ;
    }
}

impl Operation for RouterTopK {
    const NAME: &'static str = "router_top_k";

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
