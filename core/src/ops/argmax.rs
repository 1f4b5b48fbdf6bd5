//! Greedy choice: the index of the largest logit.
//!
//! ```text
//! tokens[r] = min { v : logits[r, v] = max logits[r] }        NONE where out_rows[r] is NONE
//! ```
//!
//! Compares bf16 logits widened to f32 (exact). Ties take the lowest index; +0 and -0 tie. A NaN loses to everything,
//! -inf included, so a row of nothing but NaNs gives index 0.
//!
//! Source: the tie rule is ours; torch leaves it unspecified, and lets a NaN win.

use crate::NONE;
use crate::buffer::{Buf, BufferError, BufferTable};
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::bf16;
use alloc::{format, vec::Vec};

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
            let [rows, vocab] = buffers.dims(self.logits)?;
            check_vocab(self.logits, vocab, buffers)?;
            buffers.expect(self.out_rows, &[rows])?;
            buffers.expect(self.tokens, &[rows])
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

/// Refuses logits of which no index can be a token id.
pub(super) fn check_vocab(
    logits: Buf<bf16>,
    vocab: usize,
    buffers: &BufferTable,
) -> Result<(), BufferError> {
    if vocab == 0 || vocab > NONE as usize {
        return Err(buffers.shape_error(logits, format!("[R, V] with V from 1 to {NONE}")));
    }
    Ok(())
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
