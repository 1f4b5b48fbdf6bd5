//! Logits of the rows that want them.
//!
//! ```text
//! logits[r, v] = bf16(lane_dot(x[out_rows[r]], weight[v]))
//! ```
//!
//! bf16 logits, as transformers and vLLM both have them; ties that the rounding makes fall to the lowest id. Rows
//! whose logits nobody reads are never computed: a prompt of 8,192 tokens costs one row of the vocabulary.
//! `NONE` gives a row of zeros; a row beyond `x` is refused.

use crate::NONE;
use crate::buffer::{BufferError, BufferTable};
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::{bf16, lane_dot_bf16, round_bf16};
use alloc::{format, vec::Vec};

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

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        let check = || -> Result<(), BufferError> {
            let [t, width] = buffers.dims(self.x)?;
            let [rows, vocab] = buffers.dims(self.logits)?;
            buffers.expect(self.x, &[t, width])?;
            buffers.expect(self.out_rows, &[rows])?;
            buffers.expect(self.weight, &[vocab, width])?;
            Ok(())
        };
        check().map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let mut logits = memory.take(self.logits);
        let ([t, width], [_, vocab]) = (memory.dims(self.x), memory.dims(self.logits));
        let done = lm_head(
            memory.get(self.x),
            memory.get(self.out_rows),
            memory.get(self.weight),
            width,
            vocab,
            &mut logits,
        );
        memory.put(self.logits, logits);
        done.map_err(|row| LaunchError::step_data(Self::NAME, "a row", row, format!("below {t}")))
    }
}

/// Logits of each wanted row; the first row that does not exist is the error.
pub fn lm_head(
    x: &[bf16],
    out_rows: &[u32],
    weight: &[bf16],
    width: usize,
    vocab: usize,
    logits: &mut [bf16],
) -> Result<(), u32> {
    for (&row, logits) in out_rows.iter().zip(logits.chunks_exact_mut(vocab)) {
        if row == NONE {
            logits.fill(bf16::ZERO);
            continue;
        }
        let x = x.chunks_exact(width).nth(row as usize).ok_or(row)?;
        for (logit, weight) in logits.iter_mut().zip(weight.chunks_exact(width)) {
            *logit = round_bf16(lane_dot_bf16(x, weight));
        }
    }
    Ok(())
}
