//! Causal softmax attention over pages, with the output gate.

use crate::buffer::BufferTable;
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::bf16;
use alloc::vec::Vec;

operation! {
    /// Row `t` attends to positions `0..=positions[t]` of its sequence.
    pub struct PagedAttention {
        /// bf16 `[T, heads * D]`
        read q: bf16,
        /// bf16 `[T, heads * 2 * D]`: the q projection, whose second half of each head is the gate
        read q_gate: bf16,
        /// bf16 `[pages, page size, G, D]`
        read k_cache: bf16,
        /// bf16 `[pages, page size, G, D]`
        read v_cache: bf16,
        /// u32 `[T]`
        read positions: u32,
        /// u32 `[T]`
        read row_seq: u32,
        /// u32 `[S, pages of a sequence]`
        read page_table: u32,
        /// bf16 `[T, heads * D]`
        write out: bf16,
        ;
        /// factor of the scores, `D^-0.5`
        scale: f32,
    }
}

impl Operation for PagedAttention {
    const NAME: &'static str = "paged_attention";

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
