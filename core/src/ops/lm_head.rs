//! Logits of the rows that want them.
//!
//! ```text
//! logits[r, v] = bf16(lane_dot(x[out_rows[r]], weight[v]))
//! ```
//!
//! bf16 in; f32 products and their sum in lane order; one rounding to bf16. bf16 logits, as transformers and vLLM both
//! have them; ties that the rounding makes fall to the lowest id. Rows whose logits nobody reads are never computed: a
//! prompt of 8,192 tokens costs one row of the vocabulary. `NONE` gives a row of +0.
//!
//! Errors: a row beyond `x` is refused when it runs.
//!
//! Source: transformers' `Qwen3_5MoeForCausalLM.lm_head` and its `logits_to_keep`.

use super::{linear_bf16_row, picked_rows_traffic};
use crate::NONE;
use crate::buffer::{BufferError, BufferTable};
use crate::launch::{LaunchError, Operand, Operation, Traffic, operation};
use crate::memory::Memory;
use crate::numerics::bf16;
use crate::work::{Occupancy, Work};
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
            let [vocab, width] = buffers.dims(self.weight)?;
            if vocab == 0 || width == 0 {
                return Err(buffers.shape_error(self.weight, "[V, H], neither of them 0"));
            }
            let [t, _] = buffers.dims(self.x)?;
            buffers.expect(self.x, &[t, width])?;
            let [rows] = buffers.dims(self.out_rows)?;
            buffers.expect(self.logits, &[rows, vocab])
        };
        check().map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let mut logits = memory.take(self.logits);
        let ([t, width], [vocab, _]) = (memory.dims(self.x), memory.dims(self.weight));
        let (x, weight) = (memory.get(self.x), memory.get(self.weight));
        let rows = memory.get(self.out_rows);
        let done = lm_head(x, rows, weight, [vocab, width], &mut logits);
        memory.put(self.logits, logits);
        done.map_err(|row| LaunchError::step_data(Self::NAME, "a row", row, format!("below {t}")))
    }

    fn traffic(&self, buffers: &BufferTable) -> Traffic {
        picked_rows_traffic(self.operands(), self.x, self.out_rows, buffers)
    }

    fn multiply_adds(&self, buffers: &BufferTable, _step: &Occupancy) -> Work {
        let [n, k] = buffers.dims(self.weight).unwrap_or_default();
        let [rows] = buffers.dims(self.out_rows).unwrap_or_default();
        Work::bf16((rows * n * k) as u64)
    }
}

/// Logits of each wanted row; the first row that does not exist is the error.
pub fn lm_head(
    x: &[bf16],
    out_rows: &[u32],
    weight: &[bf16],
    [vocab, width]: [usize; 2],
    logits: &mut [bf16],
) -> Result<(), u32> {
    for (&row, logits) in out_rows.iter().zip(logits.chunks_exact_mut(vocab)) {
        if row == NONE {
            logits.fill(bf16::ZERO);
            continue;
        }
        let x = x.chunks_exact(width).nth(row as usize).ok_or(row)?;
        linear_bf16_row(x, weight, logits);
    }
    Ok(())
}
