//! Accepts drafts that equal the target's own tokens.

use crate::buffer::BufferTable;
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use alloc::vec::Vec;

operation! {
    /// Number of drafts of each sequence that the target would have drawn itself.
    pub struct VerifyDrafts {
        /// u32 `[R]`: the target's own token after each row
        read tokens: u32,
        /// u32 `[T]`: the step's input; a draft is the input of the next row
        read token_ids: u32,
        /// u32 `[R]`
        read out_rows: u32,
        /// u32 `[S + 1]`: outputs of sequence `s`, its rows in order
        read seq_outs: u32,
        /// u32 `[S]`
        write accepted: u32,
        ;
    }
}

impl Operation for VerifyDrafts {
    const NAME: &'static str = "verify_drafts";

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
