//! Sampling with exact sums.

use crate::buffer::BufferTable;
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::bf16;
use alloc::vec::Vec;

operation! {
    /// Penalties, temperature, top-k, min-p, top-p, then one draw keyed by seed and position.
    pub struct Sample {
        /// bf16 `[R, V]`
        read logits: bf16,
        /// u32 `[R]`
        read out_rows: u32,
        /// f32 `[R]`: 0 is greedy
        read temperature: f32,
        /// u32 `[R]`: 0 is off
        read top_k: u32,
        /// f32 `[R]`: 1 is off
        read top_p: f32,
        /// f32 `[R]`: 0 is off
        read min_p: f32,
        /// f32 `[R]`: 1 is off
        read repetition_penalty: f32,
        /// f32 `[R]`: 0 is off
        read presence_penalty: f32,
        /// f32 `[R]`: 0 is off
        read frequency_penalty: f32,
        /// u32 `[R, 2]`: low word, high word
        read seed: u32,
        /// u32 `[R]`: position of the token that is drawn
        read draw_position: u32,
        /// u32 `[capacity]`: token ids, prompt then generated, of each row in turn
        read history: u32,
        /// u32 `[R + 1]`
        read history_start: u32,
        /// u32 `[R]`: index in `history` where the generated part of the row starts
        read history_generated: u32,
        /// u32 `[R]`
        write tokens: u32,
        ;
    }
}

impl Operation for Sample {
    const NAME: &'static str = "sample";

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
