//! Weighted sum of the experts of each token.
//!
//! ```text
//! out[t, h] = bf16(Σ_rank weights[t, rank] * y[row_of_slot[t * k + rank], h])
//! ```
//!
//! bf16 rows, f32 weights; f32 from +0.0, left to right in top-k order, product and sum rounded apart; one rounding to
//! bf16. A pair that was left out (`NONE`) adds nothing. A weight of 0 is a factor as any other: 0 times an infinity
//! is NaN. An expert that a token names twice adds twice.
//!
//! Errors: a row beyond `y` is refused when it runs.
//!
//! Source and choice: expert rows come unweighted and rounded to bf16, so that ranks can exchange them and golden can
//! compare them before a weight is known. transformers weights and rounds each row, then adds in bf16 in ascending expert
//! id; vLLM weights the f32 accumulator, rounds, and sums in f32 in slot order as here. Slot order is known to every rank.

use crate::NONE;
use crate::buffer::{BufferError, BufferTable};
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::{bf16, round_bf16};
use alloc::{format, vec::Vec};

operation! {
    /// f32 sum in top-k slot order, one rounding.
    pub struct WeightedGather {
        /// bf16 `[P, H]`: expert rows
        read y: bf16,
        /// u32 `[P]`
        read row_of_slot: u32,
        /// f32 `[T, k]`
        read weights: f32,
        /// bf16 `[T, H]`
        write out: bf16,
        ;
    }
}

impl Operation for WeightedGather {
    const NAME: &'static str = "weighted_gather";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        let check = || -> Result<(), BufferError> {
            let [t, k] = buffers.dims(self.weights)?;
            if k == 0 {
                return Err(buffers.shape_error(self.weights, "[T, k], k not 0"));
            }
            let [_, width] = buffers.dims(self.y)?;
            if width == 0 {
                return Err(buffers.shape_error(self.y, "[P, H], H not 0"));
            }
            buffers.expect(self.y, &[t * k, width])?;
            buffers.expect(self.row_of_slot, &[t * k])?;
            buffers.expect(self.out, &[t, width])?;
            Ok(())
        };
        check().map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let mut out = memory.take(self.out);
        let ([_, k], [pairs, width]) = (memory.dims(self.weights), memory.dims(self.y));
        let y = memory.get(self.y);
        let slots = memory.get(self.row_of_slot).chunks_exact(k);
        let weights = memory.get(self.weights).chunks_exact(k);
        let mut outcome = Ok(());
        for (out, (rows, weights)) in out.chunks_exact_mut(width).zip(slots.zip(weights)) {
            outcome = outcome.and(weighted_gather_row(y, rows, weights, out));
        }
        memory.put(self.out, out);
        outcome.map_err(|row| {
            LaunchError::step_data(Self::NAME, "an expert row", row, format!("below {pairs}"))
        })
    }
}

/// One token; an expert row that does not exist is the error.
pub fn weighted_gather_row(
    y: &[bf16],
    rows: &[u32],
    weights: &[f32],
    out: &mut [bf16],
) -> Result<(), u32> {
    let width = out.len();
    let count = y.len() / width;
    if let Some(&row) = rows
        .iter()
        .find(|&&row| row != NONE && row as usize >= count)
    {
        return Err(row);
    }
    for (h, out) in out.iter_mut().enumerate() {
        let mut sum = 0.0f32;
        for (&row, &weight) in rows.iter().zip(weights).filter(|(row, _)| **row != NONE) {
            sum += weight * y[row as usize * width + h].to_f32();
        }
        *out = round_bf16(sum);
    }
    Ok(())
}
