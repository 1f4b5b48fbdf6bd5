//! Linear layers of the experts, rows grouped by expert.

use crate::buffer::BufferTable;
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::bf16;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Where the input row of an expert row comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RowSource {
    /// First projection: the token of the pair, `slot_of_row[p] / k`.
    Token {
        /// Experts per token.
        k: usize,
    },
    /// Second projection: row `p` itself.
    Row,
}

operation! {
    /// bf16 experts.
    pub struct GroupedLinearBf16 {
        /// bf16 `[T, K]` or `[P, K]`, by `source`
        read x: bf16,
        /// bf16 `[E, N, K]`
        read weight: bf16,
        /// u32 `[E + 1]`
        read offsets: u32,
        /// u32 `[P]`
        read slot_of_row: u32,
        /// bf16 `[P, N]`: rows past the last group are zero
        write out: bf16,
        ;
        source: RowSource,
    }
}

impl Operation for GroupedLinearBf16 {
    const NAME: &'static str = "grouped_linear_bf16";

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
    /// s8 experts.
    pub struct GroupedLinearW8A8 {
        /// i8 `[T, K]` or `[P, K]`, by `source`
        read codes: i8,
        /// f32 `[T]` or `[P]`
        read scale: f32,
        /// i8 `[E, N, K]`
        read weight: i8,
        /// f32 `[E, N]`
        read weight_scale: f32,
        /// u32 `[E + 1]`
        read offsets: u32,
        /// u32 `[P]`
        read slot_of_row: u32,
        /// bf16 `[P, N]`: rows past the last group are zero
        write out: bf16,
        ;
        source: RowSource,
    }
}

impl Operation for GroupedLinearW8A8 {
    const NAME: &'static str = "grouped_linear_w8a8";

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
