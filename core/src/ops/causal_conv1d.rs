//! Causal depthwise convolution with SiLU.

use crate::buffer::BufferTable;
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::bf16;
use alloc::vec::Vec;

operation! {
    /// Depthwise over the rows of each sequence, history from its slot.
    pub struct CausalConv1d {
        /// bf16 `[T, C]`
        read x: bf16,
        /// f32 `[C, W]`: tap `W - 1` multiplies the current row
        read weight: f32,
        /// u32 `[S + 1]`: rows of sequence `s` are `seq_rows[s]..seq_rows[s + 1]`
        read seq_rows: u32,
        /// u32 `[S]`: slot of the history, `NONE` for a fresh sequence (zeros)
        read state_read: u32,
        /// u32 `[T]`: slot that gets the state after this row, `NONE` for none
        read state_write: u32,
        /// bf16 `[slots, W - 1, C]`: the last `W - 1` inputs, oldest first
        read_write state: bf16,
        /// bf16 `[T, C]`
        write out: bf16,
        ;
    }
}

impl Operation for CausalConv1d {
    const NAME: &'static str = "causal_conv1d";

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
