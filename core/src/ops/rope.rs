//! Rotary position embedding on the leading dims of each head.

use crate::buffer::BufferTable;
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::bf16;
use alloc::vec::Vec;

operation! {
    /// Rotates dims `j` and `j + D/2` of the first `D` of each head; the rest pass unchanged.
    pub struct Rope {
        /// bf16 `[T, heads * head_dim]`
        read x: bf16,
        /// u32 `[T]`
        read positions: u32,
        /// bf16 `[positions, 2, D / 2]`: cosines, then sines
        read table: bf16,
        /// bf16 `[T, heads * head_dim]`
        write out: bf16,
        ;
        head_dim: usize,
    }
}

impl Operation for Rope {
    const NAME: &'static str = "rope";

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
