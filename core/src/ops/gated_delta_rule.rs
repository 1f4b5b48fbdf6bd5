//! The gated delta rule, token by token.
//!
//! Per row and value head `h`, with `q`, `k` of key head `h / (Hv / Hk)` and state `S[k, v]`:
//!
//! ```text
//! q' = (q * rsqrt(lane_sum(q^2) + eps)) * scale          k' = k * rsqrt(lane_sum(k^2) + eps)
//! S[k,v] = S[k,v] * decay
//! r[v]   = lane_sum_k(S[k,v] * k'[k])
//! d[v]   = (v[v] - r[v]) * beta
//! S[k,v] = S[k,v] + k'[k] * d[v]
//! o[v]   = bf16(lane_sum_k(S[k,v] * q'[k]))
//! ```
//!
//! The decay comes before the read, the output after the update. bf16 q, k, v widened to f32; gates and
//! state f32; every product and every sum rounded to f32; one rounding to bf16, of the output.
//!
//! This recurrence is the definition for prefill, chunks, decode and verification alike. There is no
//! chunked form: its algebra is faster on paper, and gives other bits for each chunking.
//!
//! Rows of no sequence give zeros. Which slots may be named: [`StateSlots`]. Errors: `key_heads` that does
//! not divide `Hv`; an eps or scale that is not a positive finite number.
//!
//! Source: transformers `torch_recurrent_gated_delta_rule` (eps inside the root, on the sum); vLLM's decode
//! kernel is the same up to the order of sums (its state is `[Hv, Dv, Dk]`). vLLM's prefill stores q, k and
//! the chunk matrices as bf16 and is not equal to its own decode; transformers' chunked form stays f32.

use super::{StateSlots, slot_bytes, state_traffic};
use crate::buffer::{BufferError, BufferTable};
use crate::launch::{LaunchError, Operand, Operation, Traffic, check_positive, operation};
use crate::memory::Memory;
use crate::numerics::{bf16, lane_sum, lane_sum_rows, round_bf16, rsqrt};
use crate::work::Occupancy;
use alloc::{vec, vec::Vec};

/// `x * rsqrt(lane_sum(x^2) + eps)`, in f32.
pub fn l2_norm(x: &[bf16], eps: f32) -> Vec<f32> {
    let r = rsqrt(lane_sum(x.iter().map(|x| x.to_f32() * x.to_f32())) + eps);
    x.iter().map(|x| x.to_f32() * r).collect()
}

/// One row of one head: `state` `[Dk, Dv]`, `q` and `k` as the norm left them, `q` scaled.
pub fn gated_delta_rule_row(
    state: &mut [f32],
    q: &[f32],
    k: &[f32],
    v: &[bf16],
    decay: f32,
    beta: f32,
    out: &mut [bf16],
) {
    let dv = v.len();
    state.iter_mut().for_each(|s| *s *= decay);

    let mut read = vec![0.0; dv];
    lane_sum_rows(k.iter().copied().zip(state.chunks_exact(dv)), &mut read);
    let delta: Vec<f32> = v
        .iter()
        .zip(&read)
        .map(|(v, r)| (v.to_f32() - r) * beta)
        .collect();
    for (state, k) in state.chunks_exact_mut(dv).zip(k) {
        for (s, d) in state.iter_mut().zip(&delta) {
            *s += k * d;
        }
    }

    lane_sum_rows(q.iter().copied().zip(state.chunks_exact(dv)), &mut read);
    for (out, o) in out.iter_mut().zip(&read) {
        *out = round_bf16(*o);
    }
}

operation! {
    /// The recurrence over the rows of each sequence.
    pub struct GatedDeltaRule {
        /// bf16 `[T, 2 * Hk * Dk + Hv * Dv]`: all q, all k, all v
        read qkv: bf16,
        /// f32 `[T, Hv]`
        read decay: f32,
        /// f32 `[T, Hv]`
        read beta: f32,
        /// u32 `[S + 1]`
        read seq_rows: u32,
        /// u32 `[S]`
        read state_read: u32,
        /// u32 `[T]`
        read state_write: u32,
        /// f32 `[slots, Hv, Dk, Dv]`
        read_write state: f32,
        /// bf16 `[T, Hv * Dv]`
        write out: bf16,
        ;
        key_heads: usize,
        /// added to the sum of squares of q and of k
        l2_eps: f32,
        /// factor of q after its norm, `Dk^-0.5`
        scale: f32,
    }
}

/// Head counts and widths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct DeltaRuleShape {
    pub key_heads: usize,
    pub value_heads: usize,
    pub key_dim: usize,
    pub value_dim: usize,
}

impl DeltaRuleShape {
    /// Columns of a qkv row.
    pub fn columns(&self) -> usize {
        2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
    }

    /// `q`, `k` and `v` of one value head in a qkv row.
    pub fn split<'a>(&self, qkv: &'a [bf16], head: usize) -> [&'a [bf16]; 3] {
        let key_head = head / (self.value_heads / self.key_heads);
        let (q, rest) = qkv.split_at(self.key_heads * self.key_dim);
        let (k, v) = rest.split_at(self.key_heads * self.key_dim);
        [
            &q[key_head * self.key_dim..][..self.key_dim],
            &k[key_head * self.key_dim..][..self.key_dim],
            &v[head * self.value_dim..][..self.value_dim],
        ]
    }
}

impl Operation for GatedDeltaRule {
    const NAME: &'static str = "gated_delta_rule";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        check_positive(Self::NAME, "l2_eps", self.l2_eps)?;
        check_positive(Self::NAME, "scale", self.scale)?;
        let [_, value_heads, ..] = buffers
            .dims::<_, 4>(self.state)
            .map_err(|e| LaunchError::buffer(Self::NAME, e))?;
        if self.key_heads == 0 || !value_heads.is_multiple_of(self.key_heads) {
            let expected = alloc::format!("a divisor of the {value_heads} value heads");
            return Err(LaunchError::parameter(
                Self::NAME,
                "key_heads",
                self.key_heads,
                expected,
            ));
        }
        check_gated_delta_rule(self, buffers).map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let [slots, value_heads, key_dim, value_dim] = memory.dims(self.state);
        let slots = StateSlots::new(
            Self::NAME,
            memory.get(self.seq_rows),
            memory.get(self.state_read),
            memory.get(self.state_write),
            slots,
        )?;
        let shape = DeltaRuleShape {
            key_heads: self.key_heads,
            value_heads,
            key_dim,
            value_dim,
        };
        let (mut state, mut out) = (memory.take(self.state), memory.take(self.out));
        out.fill(bf16::ZERO);
        for head in 0..value_heads {
            self.run_head(memory, shape, &slots, head, &mut state, &mut out);
        }
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

impl GatedDeltaRule {
    /// One value head of all sequences; heads share nothing.
    fn run_head(
        &self,
        memory: &Memory<'_>,
        shape: DeltaRuleShape,
        slots: &StateSlots,
        head: usize,
        state: &mut [f32],
        out: &mut [bf16],
    ) {
        let (qkv, decay, beta) = (
            memory.get(self.qkv),
            memory.get(self.decay),
            memory.get(self.beta),
        );
        let DeltaRuleShape {
            value_heads,
            key_dim,
            value_dim,
            ..
        } = shape;
        let head_len = key_dim * value_dim;
        let head_state = |slot| (slot * value_heads + head) * head_len;
        for sequence in &slots.sequences {
            let mut current = match sequence.read {
                None => vec![0.0; head_len],
                Some(slot) => state[head_state(slot)..][..head_len].to_vec(),
            };
            for t in sequence.rows.clone() {
                let [q, k, v] = shape.split(&qkv[t * shape.columns()..][..shape.columns()], head);
                let mut q = l2_norm(q, self.l2_eps);
                q.iter_mut().for_each(|q| *q *= self.scale);
                let k = l2_norm(k, self.l2_eps);
                let gate = t * value_heads + head;
                let out = &mut out[gate * value_dim..][..value_dim];
                gated_delta_rule_row(&mut current, &q, &k, v, decay[gate], beta[gate], out);
                if let Some(slot) = slots.writes[t] {
                    state[head_state(slot)..][..head_len].copy_from_slice(&current);
                }
            }
        }
    }
}

fn check_gated_delta_rule(op: &GatedDeltaRule, buffers: &BufferTable) -> Result<(), BufferError> {
    let [_, value_heads, key_dim, value_dim] = buffers.dims(op.state)?;
    if value_heads == 0 || key_dim == 0 || value_dim == 0 {
        return Err(buffers.shape_error(op.state, "[slots, Hv, Dk, Dv], only slots may be 0"));
    }
    let shape = DeltaRuleShape {
        key_heads: op.key_heads,
        value_heads,
        key_dim,
        value_dim,
    };
    let [rows] = buffers.dims(op.state_write)?;
    let [sequences] = buffers.dims(op.state_read)?;
    buffers.expect(op.qkv, &[rows, shape.columns()])?;
    buffers.expect(op.decay, &[rows, value_heads])?;
    buffers.expect(op.beta, &[rows, value_heads])?;
    buffers.expect(op.seq_rows, &[sequences + 1])?;
    buffers.expect(op.out, &[rows, value_heads * value_dim])
}
