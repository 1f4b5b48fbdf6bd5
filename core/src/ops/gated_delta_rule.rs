//! The gated delta rule, token by token.

use crate::buffer::BufferTable;
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::bf16;
use alloc::vec::Vec;

operation! {
    /// The recurrence over the rows of each sequence.
    pub struct GatedDeltaRule {
        /// bf16 `[T, 2 * Hk * Dk + Hv * Dv]`: all q, all k, all v
        read qkv: bf16,
        /// f32 `[T, Hv]`
        read decay: f32,
        /// f32 `[T, Hv]`
        read beta: f32,
        /// u32 `[S + 1]`
        read seq_rows: u32,
        /// u32 `[S]`
        read state_read: u32,
        /// u32 `[T]`
        read state_write: u32,
        /// f32 `[slots, Hv, Dk, Dv]`
        read_write state: f32,
        /// bf16 `[T, Hv * Dv]`
        write out: bf16,
        ;
        key_heads: usize,
        /// added to the sum of squares of q and of k
        l2_eps: f32,
        /// factor of q after its norm, `Dk^-0.5`
        scale: f32,
    }
}

impl Operation for GatedDeltaRule {
    const NAME: &'static str = "gated_delta_rule";

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
