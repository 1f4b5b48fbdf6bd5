//! Causal depthwise convolution with SiLU.
//!
//! ```text
//! y[t,c] = bf16(silu(sum_j weight[c,j] * x[t - (W - 1) + j, c]))        j = 0 .. W-1
//! ```
//!
//! bf16 inputs widened to f32, f32 weights, each product rounded, the taps added left to right (oldest
//! first) from +0.0, SiLU in f32, one rounding to bf16. No bias. Before its first row a sequence has the
//! rows of its state slot, or zeros. The state holds raw inputs, so it is exact, and any chunking of a
//! sequence gives the same bytes.
//!
//! Rows of no sequence give zeros. Which slots may be named: [`StateSlots`].
//!
//! Source: transformers `Qwen3_5MoeGatedDeltaNet` (which rounds the sum to bf16 before SiLU) and vLLM's
//! causal_conv1d (which does not). vLLM's staging is ours: one rounding less, and no reason for two. The
//! state has vLLM's `W - 1` rows; transformers keeps one more, which nothing reads.

use super::{StateSlots, slot_bytes, state_traffic};
use crate::buffer::{BufferError, BufferTable};
use crate::launch::{LaunchError, Operand, Operation, Traffic, operation};
use crate::memory::Memory;
use crate::numerics::{bf16, round_bf16, silu};
use crate::work::Occupancy;
use alloc::{vec, vec::Vec};

/// One row: `history` `[W - 1, C]` oldest first, `weight` `[C, W]`.
pub fn causal_conv1d_row(history: &[bf16], x: &[bf16], weight: &[f32], out: &mut [bf16]) {
    let channels = x.len();
    let width = weight.len() / channels;
    for (c, (out, taps)) in out.iter_mut().zip(weight.chunks_exact(width)).enumerate() {
        let inputs = history.iter().skip(c).step_by(channels).chain([&x[c]]);
        let sum = taps
            .iter()
            .zip(inputs)
            .fold(0.0, |sum, (w, x)| sum + w * x.to_f32());
        *out = round_bf16(silu(sum));
    }
}

/// Drops the oldest row of a history `[W - 1, C]` and appends `x`.
pub fn push_history(history: &mut [bf16], x: &[bf16]) {
    if let Some(kept) = history.len().checked_sub(x.len()) {
        history.copy_within(x.len().., 0);
        history[kept..].copy_from_slice(x);
    }
}

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

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        check_causal_conv1d(self, buffers).map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let [slots, ..] = memory.dims::<_, 3>(self.state);
        let slots = StateSlots::new(
            Self::NAME,
            memory.get(self.seq_rows),
            memory.get(self.state_read),
            memory.get(self.state_write),
            slots,
        )?;
        let (mut state, mut out) = (memory.take(self.state), memory.take(self.out));
        causal_conv1d(
            memory.get(self.x),
            memory.get(self.weight),
            memory.dims(self.weight),
            &slots,
            &mut state,
            &mut out,
        );
        memory.put(self.state, state);
        memory.put(self.out, out);
        Ok(())
    }

    /// Of the state, only the slots that are named.
    fn traffic(&self, buffers: &BufferTable) -> Traffic {
        state_traffic(
            self.operands(),
            self.state,
            self.state_read,
            self.state_write,
            buffers,
        )
    }

    fn bytes(&self, buffers: &BufferTable, step: &Occupancy) -> u64 {
        self.traffic(buffers).min
            + slot_bytes(self.state, buffers) * (step.state_reads + step.state_writes)
    }
}

/// All sequences of a step.
pub fn causal_conv1d(
    x: &[bf16],
    weight: &[f32],
    [channels, width]: [usize; 2],
    slots: &StateSlots,
    state: &mut [bf16],
    out: &mut [bf16],
) {
    let slot_len = (width - 1) * channels;
    out.fill(bf16::ZERO);
    for sequence in &slots.sequences {
        let mut history = match sequence.read {
            None => vec![bf16::ZERO; slot_len],
            Some(slot) => state[slot * slot_len..][..slot_len].to_vec(),
        };
        for t in sequence.rows.clone() {
            let x = &x[t * channels..][..channels];
            causal_conv1d_row(&history, x, weight, &mut out[t * channels..][..channels]);
            push_history(&mut history, x);
            if let Some(slot) = slots.writes[t] {
                state[slot * slot_len..][..slot_len].copy_from_slice(&history);
            }
        }
    }
}

fn check_causal_conv1d(op: &CausalConv1d, buffers: &BufferTable) -> Result<(), BufferError> {
    let [channels, width] = buffers.dims(op.weight)?;
    if channels == 0 || width == 0 {
        return Err(buffers.shape_error(op.weight, "[C, W], neither of them 0"));
    }
    let [rows] = buffers.dims(op.state_write)?;
    let [sequences] = buffers.dims(op.state_read)?;
    let [slots, ..] = buffers.dims::<_, 3>(op.state)?;
    buffers.expect(op.x, &[rows, channels])?;
    buffers.expect(op.seq_rows, &[sequences + 1])?;
    buffers.expect(op.state, &[slots, width - 1, channels])?;
    buffers.expect(op.out, &[rows, channels])
}
