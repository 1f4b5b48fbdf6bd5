//! Logits of the rows that want them.

use crate::buffer::BufferTable;
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::bf16;
use alloc::vec::Vec;

operation! {
    /// Row `out_rows[r]` of `x` against the whole vocabulary; `NONE` gives zeros.
    pub struct LmHead {
        /// bf16 `[T, H]`
        read x: bf16,
        /// u32 `[R]`
        read out_rows: u32,
        /// bf16 `[V, H]`
        read weight: bf16,
        /// bf16 `[R, V]`
        write logits: bf16,
        ;
    }
}

impl Operation for LmHead {
    const NAME: &'static str = "lm_head";

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
