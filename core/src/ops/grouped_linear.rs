//! Linear layers of the experts, rows grouped by expert.
//!
//! ```text
//! out[p] = linear(x[source(p)], weight[e])        for offsets[e] <= p < offsets[e + 1]
//! out[p] = +0                                     for p >= offsets[E]
//!
//! bf16    y[n] = bf16(lane_sum_k(x[k] * w[e, n, k]))                          f32 products and sum
//! W8A8    y[n] = bf16((f32(acc) * scale) * weight_scale[e, n])                acc = sum_k codes[k] * w[e, n, k], i32
//! ```
//!
//! Each row is the dense linear of its expert ([`super::LinearBf16`], [`super::LinearW8A8`]) with that expert's own weights
//! and scales: same dtypes, same single rounding, by the same functions. How many rows an expert has changes nothing about
//! any of them. Expert rows are neither weighted nor summed here ([`super::WeightedGather`]).
//!
//! Errors: `K` above [`MAX_W8A8_K`] for the integer form; a number of pairs that is no multiple of the source's `k`. When it
//! runs: offsets that do not start at 0, do not ascend or leave the buffer, and slots that are no input row.
//!
//! Source and choice: transformers' `Qwen3_5MoeExperts` and vLLM's fused MoE. Those round the second projection after
//! weighting it; here rows are rounded unweighted, so that expert-parallel ranks can exchange them as bf16.

use super::{linear_bf16_row, linear_w8a8_row};
use crate::buffer::{Buf, BufferError, BufferId, BufferTable};
use crate::config::MAX_W8A8_K;
use crate::dtype::Element;
use crate::launch::{LaunchError, Operand, Operation, Traffic, operation, traffic_without};
use crate::memory::Memory;
use crate::numerics::bf16;
use crate::work::{Occupancy, Routed, Work};
use alloc::{format, vec::Vec};
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
    /// Expert rows that come from each input row.
    fn fan_out(self) -> usize {
        match self {
            RowSource::Token { k } => k,
            RowSource::Row => 1,
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
        check_source(Self::NAME, self.source)?;
        self.shapes()
            .check(buffers)
            .map(|_| ())
            .map_err(|e| LaunchError::buffer(Self::NAME, e))
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
        expert_traffic(
            self.operands(),
            &[self.weight.id()],
            self.slot_of_row,
            buffers,
        )
    }

    fn bytes(&self, buffers: &BufferTable, step: &Occupancy) -> u64 {
        let routed = routed(self.offsets, step);
        expert_bytes(
            self.operands(),
            &[self.weight.id()],
            routed.experts,
            buffers,
        )
    }

    fn multiply_adds(&self, buffers: &BufferTable, step: &Occupancy) -> Work {
        let [_, n, k] = buffers.dims(self.weight).unwrap_or_default();
        Work::bf16(routed(self.offsets, step).pairs * (n * k) as u64)
    }
}

impl GroupedLinearBf16 {
    fn shapes(&self) -> GroupedShapes<bf16> {
        GroupedShapes {
            x: self.x,
            weight: self.weight,
            offsets: self.offsets,
            slot_of_row: self.slot_of_row,
            out: self.out,
            source: self.source,
        }
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
        check_source(Self::NAME, self.source)?;
        check_w8a8(self, buffers).map_err(|e| LaunchError::buffer(Self::NAME, e))
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
        let per_expert = [self.weight.id(), self.weight_scale.id()];
        expert_traffic(self.operands(), &per_expert, self.slot_of_row, buffers)
    }

    fn bytes(&self, buffers: &BufferTable, step: &Occupancy) -> u64 {
        let per_expert = [self.weight.id(), self.weight_scale.id()];
        let routed = routed(self.offsets, step);
        expert_bytes(self.operands(), &per_expert, routed.experts, buffers)
    }

    fn multiply_adds(&self, buffers: &BufferTable, step: &Occupancy) -> Work {
        let [_, n, k] = buffers.dims(self.weight).unwrap_or_default();
        Work::int8(routed(self.offsets, step).pairs * (n * k) as u64)
    }
}

fn check_w8a8(op: &GroupedLinearW8A8, buffers: &BufferTable) -> Result<(), BufferError> {
    let shapes = GroupedShapes {
        x: op.codes,
        weight: op.weight,
        offsets: op.offsets,
        slot_of_row: op.slot_of_row,
        out: op.out,
        source: op.source,
    };
    let [experts, n, k] = shapes.check(buffers)?;
    if k > MAX_W8A8_K {
        return Err(buffers.shape_error(op.weight, format!("[E, N, K], K at most {MAX_W8A8_K}")));
    }
    let [rows, _] = buffers.dims(op.codes)?;
    buffers.expect(op.scale, &[rows])?;
    buffers.expect(op.weight_scale, &[experts, n])
}

/// The operands that both forms share.
struct GroupedShapes<E> {
    x: Buf<E>,
    weight: Buf<E>,
    offsets: Buf<u32>,
    slot_of_row: Buf<u32>,
    out: Buf<bf16>,
    source: RowSource,
}

impl<E: Element> GroupedShapes<E> {
    /// Checks them against each other; returns `[E, N, K]`.
    fn check(&self, buffers: &BufferTable) -> Result<[usize; 3], BufferError> {
        let [experts, n, k] = buffers.dims(self.weight)?;
        if experts == 0 || n == 0 || k == 0 {
            return Err(buffers.shape_error(self.weight, "[E, N, K], none of them 0"));
        }
        let [pairs] = buffers.dims(self.slot_of_row)?;
        let fan_out = self.source.fan_out();
        if pairs % fan_out != 0 {
            let expected = format!("[P], {fan_out} for each token");
            return Err(buffers.shape_error(self.slot_of_row, expected));
        }
        buffers.expect(self.x, &[pairs / fan_out, k])?;
        buffers.expect(self.offsets, &[experts + 1])?;
        buffers.expect(self.out, &[pairs, n])?;
        Ok([experts, n, k])
    }
}

fn check_source(op: &'static str, source: RowSource) -> Result<(), LaunchError> {
    match source.fan_out() {
        0 => Err(LaunchError::parameter(
            op,
            "source",
            "0 experts per token",
            "at least 1",
        )),
        _ => Ok(()),
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
    if let Some(&first) = offsets.first().filter(|&&first| first != 0) {
        return Err(first);
    }
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
    let expected = "offsets that ascend from 0 within the step, slots of its tokens";
    LaunchError::step_data(op, "a route", found, expected)
}

/// Weights and scales of the experts that have rows: one of them if every pair goes to the same, `min(E, P)` if all go
/// to different ones. Everything else once.
fn expert_traffic(
    operands: Vec<Operand>,
    per_expert: &[BufferId],
    slot_of_row: Buf<u32>,
    buffers: &BufferTable,
) -> Traffic {
    let pairs = buffers.dims(slot_of_row).map_or(0, |[pairs]| pairs);
    let experts = per_expert.first().and_then(|&id| buffers.get(id).ok());
    let experts = experts.map_or(0, |d| d.shape.first().copied().unwrap_or(0));
    let most = pairs.min(experts) as u64;
    Traffic {
        min: expert_bytes(operands.clone(), per_expert, most.min(1), buffers),
        max: expert_bytes(operands, per_expert, most, buffers),
    }
}

/// Weights and scales of so many experts, and everything else once.
fn expert_bytes(
    operands: Vec<Operand>,
    per_expert: &[BufferId],
    experts: u64,
    buffers: &BufferTable,
) -> u64 {
    let decls = per_expert.iter().filter_map(|&id| buffers.get(id).ok());
    let each = decls.map(|d| (d.bytes() / d.shape.first().copied().unwrap_or(0).max(1)) as u64);
    traffic_without(operands, per_expert, buffers) + experts * each.sum::<u64>()
}

/// A step that says nothing of these routes has no rows there.
fn routed(offsets: Buf<u32>, step: &Occupancy) -> Routed {
    step.routes.get(&offsets.id()).copied().unwrap_or_default()
}
