//! Causal softmax attention over pages, with the output gate.
//!
//! Row `t` at position `p` sees positions `0..=p` of its sequence, in blocks of [`KV_BLOCK`] *logical*
//! positions, wherever their pages lie. Query head `h` reads key-value head `h / (heads / G)`.
//!
//! ```text
//! block b (positions 64 b .. min(64 b + 63, p)):
//!     s_j = lane_dot(q, k_j) * scale
//!     m_b = max s_j
//!     e_j = exp(s_j - m_b)
//!     l_b = lane_sum(e_j)                            j counted from the start of the block
//!     o_b[d] = lane_sum(e_j * v_j[d])
//! fold, b ascending, starting with the first block's (m, l, o):
//!     m' = max(m, m_b)     c = exp(m - m')     c_b = exp(m_b - m')
//!     l = l * c + l_b * c_b
//!     o[d] = o[d] * c + o_b[d] * c_b
//! out[d] = bf16(bf16(o[d] / l) * bf16(sigmoid(gate[d])))
//! ```
//!
//! bf16 q, k, v and gate widened to f32; everything up to `o / l` in f32; then the two roundings of the
//! gate. A block can be computed apart, on another core or workgroup: the fold is the only ordered part,
//! and it does not know how the rows came into the step. A NaN score gives a NaN row.
//!
//! Inert rows give zeros. Errors at run time: a sequence, position or page out of range.
//!
//! Source: transformers `eager_attention_forward`, which rounds the normalised probabilities to bf16, and
//! vLLM's online softmax in f32. Probabilities stay f32 here: those of a block are not normalised yet, so
//! rounding them would make the bytes depend on the block. The gate is rounded as both do it.

use super::PageTable;
use crate::buffer::{BufferError, BufferTable};
use crate::launch::{
    LaunchError, Operand, Operation, Traffic, check_positive, operation, traffic_without,
};
use crate::memory::Memory;
use crate::numerics::{bf16, exp, lane_dot_bf16, lane_sum, lane_sum_rows, round_bf16, sigmoid};
use crate::work::Occupancy;
use alloc::{format, vec, vec::Vec};

/// Logical positions whose softmax is taken together before the fold.
pub const KV_BLOCK: usize = 64;

/// Attention over a part of the positions: its maximum, sum and unnormalised output.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct AttentionPart {
    pub max: f32,
    pub sum: f32,
    pub out: Vec<f32>,
}

impl AttentionPart {
    /// One block of at most [`KV_BLOCK`] positions; `keys` and `values` in order of position, not empty.
    pub fn block(q: &[bf16], keys: &[&[bf16]], values: &[&[bf16]], scale: f32) -> AttentionPart {
        let scores: Vec<f32> = keys.iter().map(|k| lane_dot_bf16(q, k) * scale).collect();
        let max = scores
            .iter()
            .fold(f32::NEG_INFINITY, |max, &s| if s > max { s } else { max });
        let weights: Vec<f32> = scores.iter().map(|s| exp(s - max)).collect();
        let mut out = vec![0.0; q.len()];
        lane_sum_rows(
            weights.iter().copied().zip(values.iter().copied()),
            &mut out,
        );
        AttentionPart {
            max,
            sum: lane_sum(weights),
            out,
        }
    }

    /// Folds the next block in.
    pub fn fold(&mut self, next: &AttentionPart) {
        let max = if next.max > self.max {
            next.max
        } else {
            self.max
        };
        let (c, c_next) = (exp(self.max - max), exp(next.max - max));
        self.max = max;
        self.sum = self.sum * c + next.sum * c_next;
        for (o, next) in self.out.iter_mut().zip(&next.out) {
            *o = *o * c + next * c_next;
        }
    }

    /// Normalises, rounds and gates.
    pub fn finish(&self, gate: &[bf16], out: &mut [bf16]) {
        for ((out, o), gate) in out.iter_mut().zip(&self.out).zip(gate) {
            let o = round_bf16(o / self.sum);
            let gate = round_bf16(sigmoid(gate.to_f32()));
            *out = round_bf16(o.to_f32() * gate.to_f32());
        }
    }
}

/// One head of one row over all positions it sees (at least one, in order).
pub fn attention_head(
    q: &[bf16],
    keys: &[&[bf16]],
    values: &[&[bf16]],
    gate: &[bf16],
    scale: f32,
    out: &mut [bf16],
) {
    keys.chunks(KV_BLOCK)
        .zip(values.chunks(KV_BLOCK))
        .map(|(keys, values)| AttentionPart::block(q, keys, values, scale))
        .reduce(|mut part, next| {
            part.fold(&next);
            part
        })
        .expect("a row sees its own position")
        .finish(gate, out);
}

operation! {
    /// Row `t` attends to positions `0..=positions[t]` of its sequence.
    pub struct PagedAttention {
        /// bf16 `[T, heads * D]`
        read q: bf16,
        /// bf16 `[T, heads * 2 * D]`: the q projection, whose second half of each head is the gate
        read q_gate: bf16,
        /// bf16 `[pages, page size, G, D]`
        read k_cache: bf16,
        /// bf16 `[pages, page size, G, D]`
        read v_cache: bf16,
        /// u32 `[T]`
        read positions: u32,
        /// u32 `[T]`
        read row_seq: u32,
        /// u32 `[S, pages of a sequence]`
        read page_table: u32,
        /// bf16 `[T, heads * D]`
        write out: bf16,
        ;
        /// factor of the scores, `D^-0.5`
        scale: f32,
    }
}

impl Operation for PagedAttention {
    const NAME: &'static str = "paged_attention";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        check_positive(Self::NAME, "scale", self.scale)?;
        check_paged_attention(self, buffers).map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let mut out = memory.take(self.out);
        let result = self.attend(memory, &mut out);
        memory.put(self.out, out);
        result
    }

    /// Of the caches, at most the pages of every sequence, once each: rows of a sequence share them.
    fn traffic(&self, buffers: &BufferTable) -> Traffic {
        let caches = [self.k_cache.id(), self.v_cache.id()];
        let min = traffic_without(self.operands(), &caches, buffers);
        let page = match buffers.dims(self.k_cache) {
            Ok([_, page_size, groups, dim]) => 2 * (page_size * groups * dim) as u64,
            Err(_) => 0,
        };
        let named_pages = buffers.bytes(self.page_table) / 4;
        Traffic {
            min,
            max: min + named_pages * 2 * page,
        }
    }

    fn bytes(&self, buffers: &BufferTable, step: &Occupancy) -> u64 {
        let position = match buffers.dims(self.k_cache) {
            Ok([_, _, groups, dim]) => 2 * 2 * (groups * dim) as u64,
            Err(_) => 0,
        };
        self.traffic(buffers).min + step.positions * position
    }
}

impl PagedAttention {
    fn attend(&self, memory: &Memory<'_>, out: &mut [bf16]) -> Result<(), LaunchError> {
        let [_, columns] = memory.dims(self.q);
        let [pages, page_size, groups, dim] = memory.dims(self.k_cache);
        let [sequences, pages_per_sequence] = memory.dims(self.page_table);
        let table = PageTable {
            op: Self::NAME,
            table: memory.get(self.page_table),
            sequences,
            pages_per_sequence,
            page_size,
            pages,
        };
        let inputs = memory
            .get(self.q)
            .chunks_exact(columns)
            .zip(memory.get(self.q_gate).chunks_exact(2 * columns));
        let rows = memory
            .get(self.row_seq)
            .iter()
            .zip(memory.get(self.positions));
        let rows = rows.zip(inputs).zip(out.chunks_exact_mut(columns));
        for (t, (((&seq, &position), (q, q_gate)), out)) in rows.enumerate() {
            let Some(sequence) = table.sequence(t, seq)? else {
                out.fill(bf16::ZERO);
                continue;
            };
            // The last position is the one most likely out of range; checking it first also bounds the walk.
            table.cache_row(sequence, position)?;
            let places = (0..=position)
                .map(|p| table.cache_row(sequence, p))
                .collect::<Result<Vec<usize>, _>>()?;
            let queries_per_group = columns / dim / groups;
            let heads = q
                .chunks_exact(dim)
                .zip(q_gate.chunks_exact(2 * dim))
                .zip(out.chunks_exact_mut(dim));
            for (h, ((q, q_gate), out)) in heads.enumerate() {
                let group = h / queries_per_group;
                let at = |cache| -> Vec<&[bf16]> {
                    let content: &[bf16] = memory.get(cache);
                    places
                        .iter()
                        .map(|place| &content[(place * groups + group) * dim..][..dim])
                        .collect()
                };
                attention_head(
                    q,
                    &at(self.k_cache),
                    &at(self.v_cache),
                    &q_gate[dim..],
                    self.scale,
                    out,
                );
            }
        }
        Ok(())
    }
}

fn check_paged_attention(op: &PagedAttention, buffers: &BufferTable) -> Result<(), BufferError> {
    let [pages, page_size, groups, dim] = buffers.dims(op.k_cache)?;
    if page_size == 0 || groups == 0 || dim == 0 {
        return Err(
            buffers.shape_error(op.k_cache, "[pages, page size, G, D], only pages may be 0")
        );
    }
    let [rows, columns] = buffers.dims(op.q)?;
    if columns == 0 || !columns.is_multiple_of(groups * dim) {
        let expected = format!("[T, heads * {dim}], heads a multiple of {groups} and not 0");
        return Err(buffers.shape_error(op.q, expected));
    }
    let [_, _] = buffers.dims(op.page_table)?;
    buffers.expect(op.v_cache, &[pages, page_size, groups, dim])?;
    buffers.expect(op.q_gate, &[rows, 2 * columns])?;
    buffers.expect(op.positions, &[rows])?;
    buffers.expect(op.row_seq, &[rows])?;
    buffers.expect(op.out, &[rows, columns])
}
