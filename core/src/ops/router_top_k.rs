//! Router: softmax over all experts, the best `k`, renormalised.
//!
//! ```text
//! m = max l_e;  x_e = exp(l_e - m);  p_e = x_e / lane_sum(x)
//! ids = the k largest l_e, best first;  w_i = p_i / (p_1 + .. + p_k, left to right)
//! ```
//!
//! bf16 logits, f32 from there on: the exponentials and their lane-order sum over all `E`, one division for each chosen
//! expert, the chosen ones' sum left to right in rank order from +0.0, one more division each. No rounding to bf16.
//!
//! **Ties** take the lowest id; +0 and -0 tie. **NaN** loses to every number, -inf included, and counts as exp = 0: it is
//! chosen only when fewer than `k` numbers are there, by lowest id, with weight 0. If the largest number is an infinity of
//! either sign, or no logit is a number, every weight of the row is NaN: visible, and in that row only. An inert row gets
//! ids `NONE` and weights 0.
//!
//! Errors: `k` beyond the number of experts.
//!
//! Source and choice: transformers' `Qwen3_5MoeTopKRouter` rounds the weights to bf16, vLLM keeps f32; f32 here, since they
//! are factors of an f32 sum. vLLM multiplies by reciprocals of both sums; transformers divides, and so do we. Both choose
//! by probability; we choose by logit, which differs only where exp maps two logits to one value (both 104 below the
//! largest, say): a tie can then be told without an exponential. The tie rule is that of vLLM's XPU kernel.

use crate::NONE;
use crate::buffer::{BufferError, BufferTable};
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::{bf16, exp, lane_sum};
use alloc::{format, vec::Vec};

operation! {
    /// Experts of each row, best first.
    pub struct RouterTopK {
        /// bf16 `[T, E]`
        read logits: bf16,
        /// u32 `[T]`: an inert row gets ids `NONE` and weights 0
        read row_seq: u32,
        /// u32 `[T, k]`
        write ids: u32,
        /// f32 `[T, k]`
        write weights: f32,
        ;
    }
}

impl Operation for RouterTopK {
    const NAME: &'static str = "router_top_k";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        let check = || -> Result<(), BufferError> {
            let [rows, experts] = buffers.dims(self.logits)?;
            let [_, k] = buffers.dims(self.ids)?;
            if k == 0 || k > experts {
                return Err(
                    buffers.shape_error(self.ids, format!("[T, k] with k from 1 to {experts}"))
                );
            }
            buffers.expect(self.row_seq, &[rows])?;
            buffers.expect(self.ids, &[rows, k])?;
            buffers.expect(self.weights, &[rows, k])
        };
        check().map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let (mut ids, mut weights) = (memory.take(self.ids), memory.take(self.weights));
        let ([_, experts], [_, k]) = (memory.dims(self.logits), memory.dims(self.ids));
        let rows = memory
            .get(self.logits)
            .chunks_exact(experts)
            .zip(memory.get(self.row_seq));
        let routes = ids.chunks_exact_mut(k).zip(weights.chunks_exact_mut(k));
        for ((logits, &sequence), (ids, weights)) in rows.zip(routes) {
            if sequence == NONE {
                ids.fill(NONE);
                weights.fill(0.0);
            } else {
                router_top_k_row(logits, ids, weights);
            }
        }
        memory.put(self.ids, ids);
        memory.put(self.weights, weights);
        Ok(())
    }
}

/// One row.
pub fn router_top_k_row(logits: &[bf16], ids: &mut [u32], weights: &mut [f32]) {
    let logits: Vec<f32> = logits.iter().map(|l| l.to_f32()).collect();
    let numbers = logits.iter().copied().filter(|l| !l.is_nan());
    let max = numbers.fold(f32::NEG_INFINITY, |m, l| if l > m { l } else { m });
    let weight = |l: f32| if l.is_nan() { 0.0 } else { exp(l - max) };
    let total = lane_sum(logits.iter().map(|&l| weight(l)));
    for rank in 0..ids.len() {
        let free = |e: &usize| !ids[..rank].contains(&(*e as u32));
        let candidates = (0..logits.len()).filter(free);
        let best = candidates.reduce(|best, e| {
            if beats(logits[e], logits[best]) {
                e
            } else {
                best
            }
        });
        let best = best.expect("k is at most the number of experts");
        ids[rank] = best as u32;
        weights[rank] = weight(logits[best]) / total;
    }
    let sum = weights.iter().fold(0.0, |sum, w| sum + w);
    weights.iter_mut().for_each(|w| *w /= sum);
}

/// A later logit wins only if it is larger, or a number against a NaN.
fn beats(challenger: f32, holder: f32) -> bool {
    challenger > holder || holder.is_nan() && !challenger.is_nan()
}
