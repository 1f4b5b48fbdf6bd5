//! Embedding lookup.
//!
//! ```text
//! out[t] = table[token_ids[t]]      row_seq[t] != NONE
//! out[t] = 0                        row_seq[t] == NONE
//! ```
//!
//! bf16 in, bf16 out: a copy, without scaling. The token id of an inert row is not looked at.
//!
//! Errors at run time: a live row whose id is not below `V`.
//!
//! Source: transformers `Qwen3_5MoeTextModel.embed_tokens`; vLLM is the same.

use crate::NONE;
use crate::buffer::{BufferError, BufferTable};
use crate::launch::{LaunchError, Operand, Operation, Traffic, operation};
use crate::memory::Memory;
use crate::numerics::bf16;
use crate::work::Occupancy;
use alloc::{format, vec::Vec};

operation! {
    /// Row `token_ids[t]` of the table; inert rows become zero.
    pub struct Embedding {
        /// u32 `[T]`
        read token_ids: u32,
        /// u32 `[T]`: sequence of the row, `NONE` for an inert row
        read row_seq: u32,
        /// bf16 `[V, H]`
        read table: bf16,
        /// bf16 `[T, H]`
        write out: bf16,
        ;
    }
}

impl Operation for Embedding {
    const NAME: &'static str = "embedding";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        check_embedding(self, buffers).map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let mut out = memory.take(self.out);
        let [_, width] = memory.dims(self.table);
        let result = embedding(
            memory.get(self.token_ids),
            memory.get(self.row_seq),
            memory.get(self.table),
            width,
            &mut out,
        );
        memory.put(self.out, out);
        result
    }

    /// One row of the table for each live row.
    fn traffic(&self, buffers: &BufferTable) -> Traffic {
        let min =
            buffers.bytes(self.token_ids) + buffers.bytes(self.row_seq) + buffers.bytes(self.out);
        Traffic {
            min,
            max: min + buffers.bytes(self.out),
        }
    }

    fn bytes(&self, buffers: &BufferTable, step: &Occupancy) -> u64 {
        let width = buffers.dims(self.out).map_or(0, |[_, width]| width as u64);
        self.traffic(buffers).min + step.rows * width * 2
    }
}

/// Looks up every live row and zeroes the others.
pub fn embedding(
    token_ids: &[u32],
    row_seq: &[u32],
    table: &[bf16],
    width: usize,
    out: &mut [bf16],
) -> Result<(), LaunchError> {
    let vocab = table.len() / width;
    let rows = token_ids
        .iter()
        .zip(row_seq)
        .zip(out.chunks_exact_mut(width));
    for (t, ((&id, &seq), out)) in rows.enumerate() {
        if seq == NONE {
            out.fill(bf16::ZERO);
        } else if (id as usize) < vocab {
            out.copy_from_slice(&table[id as usize * width..][..width]);
        } else {
            let what = format!("token id of row {t}");
            let expected = format!("below the vocabulary's {vocab}");
            return Err(LaunchError::step_data(Embedding::NAME, what, id, expected));
        }
    }
    Ok(())
}

fn check_embedding(op: &Embedding, buffers: &BufferTable) -> Result<(), BufferError> {
    let [vocab, width] = buffers.dims(op.table)?;
    if vocab == 0 || width == 0 {
        return Err(buffers.shape_error(op.table, "[V, H], neither of them 0"));
    }
    let [rows] = buffers.dims(op.token_ids)?;
    buffers.expect(op.row_seq, &[rows])?;
    buffers.expect(op.out, &[rows, width])
}
