//! Linear layers of the experts, rows grouped by expert.
//!
//! ```text
//! out[p] = linear(x[source(p)], weight[e])        for offsets[e] <= p < offsets[e + 1]
//! out[p] = 0                                      for p >= offsets[E]
//! ```
//!
//! Each row is the dense linear of its expert ([`super::LinearBf16`], [`super::LinearW8A8`]) with that expert's own weights
//! and scales: same dtypes, same single rounding. How many rows an expert has changes nothing about any of them.
//!
//! Offsets that do not ascend or leave the buffer, and slots that are no input row, are refused when they run.

use super::{linear_bf16_row, linear_w8a8_row};
use crate::buffer::{BufferError, BufferId, BufferTable};
use crate::launch::{LaunchError, Operand, Operation, Traffic, operation};
use crate::memory::Memory;
use crate::numerics::bf16;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Where the input row of an expert row comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RowSource {
    /// First projection: the token of the pair, `slot_of_row[p] / k`.
    Token {
        /// Experts per token.
        k: usize,
    },
    /// Second projection: row `p` itself.
    Row,
}

impl RowSource {
    /// Input rows of a step with this many pairs.
    fn rows(self, pairs: usize) -> usize {
        match self {
            RowSource::Token { k } => pairs / k.max(1),
            RowSource::Row => pairs,
        }
    }

    /// Input row of expert row `p`.
    pub fn row(self, p: usize, slot: u32) -> usize {
        match self {
            RowSource::Token { k } => slot as usize / k,
            RowSource::Row => p,
        }
    }
}

operation! {
    /// bf16 experts.
    pub struct GroupedLinearBf16 {
        /// bf16 `[T, K]` or `[P, K]`, by `source`
        read x: bf16,
        /// bf16 `[E, N, K]`
        read weight: bf16,
        /// u32 `[E + 1]`
        read offsets: u32,
        /// u32 `[P]`
        read slot_of_row: u32,
        /// bf16 `[P, N]`: rows past the last group are zero
        write out: bf16,
        ;
        source: RowSource,
    }
}

impl Operation for GroupedLinearBf16 {
    const NAME: &'static str = "grouped_linear_bf16";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        let check = || -> Result<(), BufferError> {
            let [_, k] = buffers.dims(self.x)?;
            let [experts, n, _] = buffers.dims(self.weight)?;
            buffers.expect(self.weight, &[experts, n, k])?;
            let [pairs] = buffers.dims(self.slot_of_row)?;
            buffers.expect(self.offsets, &[experts + 1])?;
            buffers.expect(self.x, &[self.source.rows(pairs), k])?;
            buffers.expect(self.out, &[pairs, n])?;
            Ok(())
        };
        check().map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let mut out = memory.take(self.out);
        let [_, n, k] = memory.dims(self.weight);
        let (x, weight) = (memory.get(self.x), memory.get(self.weight));
        let routes = (memory.get(self.offsets), memory.get(self.slot_of_row));
        let done = grouped_rows(routes, self.source, n, &mut out, |expert, row, out| {
            let x = x.chunks_exact(k).nth(row)?;
            linear_bf16_row(x, &weight[expert * n * k..][..n * k], out);
            Some(())
        });
        memory.put(self.out, out);
        done.map_err(|found| route_error(Self::NAME, found))
    }

    fn traffic(&self, buffers: &BufferTable) -> Traffic {
        expert_traffic(self.operands(), buffers, self.weight.id())
    }
}

operation! {
    /// s8 experts.
    pub struct GroupedLinearW8A8 {
        /// i8 `[T, K]` or `[P, K]`, by `source`
        read codes: i8,
        /// f32 `[T]` or `[P]`
        read scale: f32,
        /// i8 `[E, N, K]`
        read weight: i8,
        /// f32 `[E, N]`
        read weight_scale: f32,
        /// u32 `[E + 1]`
        read offsets: u32,
        /// u32 `[P]`
        read slot_of_row: u32,
        /// bf16 `[P, N]`: rows past the last group are zero
        write out: bf16,
        ;
        source: RowSource,
    }
}

impl Operation for GroupedLinearW8A8 {
    const NAME: &'static str = "grouped_linear_w8a8";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        let check = || -> Result<(), BufferError> {
            let [_, k] = buffers.dims(self.codes)?;
            let [experts, n, _] = buffers.dims(self.weight)?;
            buffers.expect(self.weight, &[experts, n, k])?;
            buffers.expect(self.weight_scale, &[experts, n])?;
            let [pairs] = buffers.dims(self.slot_of_row)?;
            buffers.expect(self.offsets, &[experts + 1])?;
            buffers.expect(self.codes, &[self.source.rows(pairs), k])?;
            buffers.expect(self.scale, &[self.source.rows(pairs)])?;
            buffers.expect(self.out, &[pairs, n])?;
            Ok(())
        };
        check().map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let mut out = memory.take(self.out);
        let [_, n, k] = memory.dims(self.weight);
        let (codes, scale) = (memory.get(self.codes), memory.get(self.scale));
        let (weight, weight_scale) = (memory.get(self.weight), memory.get(self.weight_scale));
        let routes = (memory.get(self.offsets), memory.get(self.slot_of_row));
        let done = grouped_rows(routes, self.source, n, &mut out, |expert, row, out| {
            let codes = codes.chunks_exact(k).nth(row)?;
            let weight = &weight[expert * n * k..][..n * k];
            linear_w8a8_row(
                codes,
                scale[row],
                weight,
                &weight_scale[expert * n..][..n],
                out,
            );
            Some(())
        });
        memory.put(self.out, out);
        done.map_err(|found| route_error(Self::NAME, found))
    }

    fn traffic(&self, buffers: &BufferTable) -> Traffic {
        expert_traffic(self.operands(), buffers, self.weight.id())
    }
}

/// Walks the rows of every expert: `linear(expert, input row, output row)` says `None` where there is no such input
/// row. A route that leads nowhere is the error.
fn grouped_rows(
    (offsets, slot_of_row): (&[u32], &[u32]),
    source: RowSource,
    n: usize,
    out: &mut [bf16],
    mut linear: impl FnMut(usize, usize, &mut [bf16]) -> Option<()>,
) -> Result<(), u32> {
    out.fill(bf16::ZERO);
    for (expert, range) in offsets.windows(2).enumerate() {
        let rows = range[0] as usize..range[1] as usize;
        let slots = slot_of_row.get(rows.clone()).ok_or(range[1])?;
        for (p, &slot) in rows.zip(slots) {
            linear(expert, source.row(p, slot), &mut out[p * n..][..n]).ok_or(slot)?;
        }
    }
    Ok(())
}

fn route_error(op: &'static str, found: u32) -> LaunchError {
    let expected = "offsets that ascend within the step, slots of its rows";
    LaunchError::step_data(op, "a route", found, expected)
}

/// Weights of at least one and at most min(experts, pairs) experts; everything else once. With no live row nothing
/// is read at all.
fn expert_traffic(operands: Vec<Operand>, buffers: &BufferTable, weight: BufferId) -> Traffic {
    let of = |o: &Operand| {
        buffers
            .get(o.buffer)
            .map(|d| (d.bytes() as u64, d.shape.clone()))
    };
    let mut traffic = Traffic::default();
    let pairs = operands
        .iter()
        .find(|o| o.name == "slot_of_row")
        .and_then(|o| of(o).ok());
    let pairs = pairs.map_or(0, |(_, shape)| shape[0] as u64);
    for operand in &operands {
        let Ok((bytes, shape)) = of(operand) else {
            continue;
        };
        let per_expert = operand.buffer == weight || operand.name == "weight_scale";
        let most = match per_expert {
            true => bytes / shape[0] as u64 * pairs.min(shape[0] as u64),
            false => bytes,
        };
        traffic.max += most;
        traffic.min += if per_expert {
            most.min(bytes / shape[0] as u64)
        } else {
            bytes
        };
    }
    traffic
}
