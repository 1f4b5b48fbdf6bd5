//! Greedy choice: the index of the largest logit.
//!
//! Ties take the lowest index; +0 and -0 tie. A NaN loses to everything, so a row of NaNs gives index 0.
//! An inert row (`out_rows[r] == NONE`) gives `NONE`.
//!
//! Source: the tie rule is ours; torch leaves it unspecified.

use crate::NONE;
use crate::buffer::{BufferError, BufferTable};
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::bf16;
use alloc::vec::Vec;

operation! {
    /// Index of the largest logit, the lowest on ties; `NONE` for an inert row.
    pub struct Argmax {
        /// bf16 `[R, V]`
        read logits: bf16,
        /// u32 `[R]`
        read out_rows: u32,
        /// u32 `[R]`
        write tokens: u32,
        ;
    }
}

impl Operation for Argmax {
    const NAME: &'static str = "argmax";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        let check = || -> Result<(), BufferError> {
            let [rows, _] = buffers.dims(self.logits)?;
            buffers.expect(self.out_rows, &[rows])?;
            buffers.expect(self.tokens, &[rows])?;
            Ok(())
        };
        check().map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let mut tokens = memory.take(self.tokens);
        let [_, vocab] = memory.dims(self.logits);
        let logits = memory.get(self.logits).chunks_exact(vocab);
        let rows = memory.get(self.out_rows).iter().zip(logits);
        for (token, (&row, logits)) in tokens.iter_mut().zip(rows) {
            *token = if row == NONE {
                NONE
            } else {
                argmax(logits.iter().map(|l| l.to_f32()))
            };
        }
        memory.put(self.tokens, tokens);
        Ok(())
    }
}

/// Index of the largest value, the lowest on ties; NaN below everything.
pub fn argmax(values: impl IntoIterator<Item = f32>) -> u32 {
    let mut best: Option<(f32, u32)> = None;
    for (index, value) in (0u32..).zip(values) {
        if !value.is_nan() && best.is_none_or(|(largest, _)| value > largest) {
            best = Some((value, index));
        }
    }
    best.map_or(0, |(_, index)| index)
}
