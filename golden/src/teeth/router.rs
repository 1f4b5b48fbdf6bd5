//! Mutants of the router and of the way there and back: grouping, weighted sum, shared expert.

use super::{Mutant, mutant};
use layerlet_core::NONE;
use layerlet_core::launch::{LaunchError, Operation};
use layerlet_core::memory::Memory;
use layerlet_core::numerics::{bf16, exp, lane_sum, round_bf16, sigmoid};
use layerlet_core::ops::{ExpertPrologue, RouterTopK, SharedExpert, WeightedGather};

pub const MUTANTS: &[Mutant] = &[
    mutant!(
        "router_top_k",
        "gives ties to the highest expert",
        RouterTopK,
        |op, m, fault: bool| router_top_k(op, m, fault.then_some(Router::LateTies))
    ),
    mutant!(
        "router_top_k",
        "sums the exponentials one after the other",
        RouterTopK,
        |op, m, fault: bool| router_top_k(op, m, fault.then_some(Router::Sequential))
    ),
    mutant!(
        "router_top_k",
        "leaves the chosen weights as they are among all experts",
        RouterTopK,
        |op, m, fault: bool| router_top_k(op, m, fault.then_some(Router::Unnormalised))
    ),
    mutant!(
        "expert_prologue",
        "writes the row map column-major",
        ExpertPrologue,
        |op, m, fault: bool| expert_prologue(op, m, fault.then_some(Prologue::ColumnMajor))
    ),
    mutant!(
        "expert_prologue",
        "puts the last pair of an expert first",
        ExpertPrologue,
        |op, m, fault: bool| expert_prologue(op, m, fault.then_some(Prologue::Unstable))
    ),
    mutant!(
        "expert_prologue",
        "leaves out an id that is no expert",
        ExpertPrologue,
        |op, m, fault: bool| expert_prologue(op, m, fault.then_some(Prologue::Lenient))
    ),
    mutant!(
        "weighted_gather",
        "sums in the order of the expert rows",
        WeightedGather,
        |op, m, fault: bool| weighted_gather(op, m, fault.then_some(Gather::ExpertOrder))
    ),
    mutant!(
        "weighted_gather",
        "skips pairs of weight 0",
        WeightedGather,
        |op, m, fault: bool| weighted_gather(op, m, fault.then_some(Gather::SkipsZero))
    ),
    mutant!(
        "weighted_gather",
        "rounds every weighted row",
        WeightedGather,
        |op, m, fault: bool| weighted_gather(op, m, fault.then_some(Gather::RoundsRows))
    ),
    mutant!(
        "shared_expert",
        "leaves the gate out",
        SharedExpert,
        |op, m, fault: bool| shared_expert(op, m, fault.then_some(Shared::Ungated))
    ),
    mutant!(
        "shared_expert",
        "does not round before the addition",
        SharedExpert,
        |op, m, fault: bool| shared_expert(op, m, fault.then_some(Shared::RoundsOnce))
    ),
];

#[derive(Clone, Copy, PartialEq)]
enum Router {
    LateTies,
    Sequential,
    Unnormalised,
}

fn router_top_k(
    op: &RouterTopK,
    memory: &mut Memory<'_>,
    fault: Option<Router>,
) -> Result<(), LaunchError> {
    let (mut ids, mut weights) = (memory.take(op.ids), memory.take(op.weights));
    let ([_, experts], [_, k]) = (memory.dims(op.logits), memory.dims(op.ids));
    ids.fill(NONE);
    weights.fill(0.0);
    let rows = memory.get(op.logits).chunks_exact(experts);
    let routes = ids.chunks_exact_mut(k).zip(weights.chunks_exact_mut(k));
    let all = rows.zip(memory.get(op.row_seq)).zip(routes);
    for ((logits, _), (ids, weights)) in all.filter(|((_, sequence), _)| **sequence != NONE) {
        route(logits, ids, weights, fault);
    }
    memory.put(op.ids, ids);
    memory.put(op.weights, weights);
    Ok(())
}

fn route(logits: &[bf16], ids: &mut [u32], weights: &mut [f32], fault: Option<Router>) {
    // A NaN is `None`, which is less than every number.
    let logits: Vec<Option<f32>> = logits
        .iter()
        .map(|l| Some(l.to_f32()).filter(|l| !l.is_nan()))
        .collect();
    let mut ranked: Vec<usize> = (0..logits.len()).collect();
    if fault == Some(Router::LateTies) {
        ranked.reverse();
    }
    ranked.sort_by(|a, b| logits[*b].partial_cmp(&logits[*a]).expect("no NaN"));
    let largest = logits[ranked[0]].unwrap_or(f32::NEG_INFINITY);
    let power = |e: usize| logits[e].map_or(0.0, |l| exp(l - largest));
    let powers = (0..logits.len()).map(power);
    let total = match fault {
        Some(Router::Sequential) => powers.fold(0.0, |sum, x| sum + x),
        _ => lane_sum(powers),
    };
    for ((id, weight), e) in ids.iter_mut().zip(&mut *weights).zip(ranked) {
        *id = e as u32;
        *weight = power(e) / total;
    }
    if fault != Some(Router::Unnormalised) {
        let chosen = weights.iter().fold(0.0, |sum, w| sum + w);
        weights.iter_mut().for_each(|w| *w /= chosen);
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Prologue {
    ColumnMajor,
    Unstable,
    Lenient,
}

fn expert_prologue(
    op: &ExpertPrologue,
    memory: &mut Memory<'_>,
    fault: Option<Prologue>,
) -> Result<(), LaunchError> {
    let [tokens, k] = memory.dims(op.ids);
    let [entries] = memory.dims(op.offsets);
    let ids = memory.get(op.ids).to_vec();
    let stray = |id: u32| id as usize >= entries - 1;
    let refused = ids.iter().find(|id| **id != NONE && stray(**id));
    if let Some(&id) = refused.filter(|_| fault != Some(Prologue::Lenient)) {
        let name = ExpertPrologue::NAME;
        return Err(LaunchError::step_data(name, "an id", id, "an expert"));
    }
    let mut order: Vec<usize> = (0..ids.len()).filter(|slot| !stray(ids[*slot])).collect();
    if fault == Some(Prologue::Unstable) {
        order.reverse();
    }
    order.sort_by_key(|slot| ids[*slot]);
    for (expert, offset) in memory.get_mut(op.offsets).iter_mut().enumerate() {
        let below = order.iter().filter(|slot| (ids[**slot] as usize) < expert);
        *offset = below.count() as u32;
    }
    memory.get_mut(op.slot_of_row).fill(NONE);
    memory.get_mut(op.row_of_slot).fill(NONE);
    for (row, slot) in order.into_iter().enumerate() {
        let written = match fault {
            Some(Prologue::ColumnMajor) => slot % k * tokens + slot / k,
            _ => slot,
        };
        memory.get_mut(op.slot_of_row)[row] = written as u32;
        memory.get_mut(op.row_of_slot)[slot] = row as u32;
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Gather {
    ExpertOrder,
    SkipsZero,
    RoundsRows,
}

pub(super) fn weighted_gather(
    op: &WeightedGather,
    memory: &mut Memory<'_>,
    fault: Option<Gather>,
) -> Result<(), LaunchError> {
    let ([_, k], [pairs, width]) = (memory.dims(op.weights), memory.dims(op.y));
    let rows = memory.get(op.row_of_slot);
    let stray = rows.iter().find(|r| **r != NONE && **r as usize >= pairs);
    if let Some(&row) = stray {
        let name = WeightedGather::NAME;
        return Err(LaunchError::step_data(name, "a row", row, "an expert row"));
    }
    let mut out = memory.take(op.out);
    let y = memory.get(op.y);
    let tokens = memory.get(op.row_of_slot).chunks_exact(k);
    let tokens = tokens.zip(memory.get(op.weights).chunks_exact(k));
    for (out, (rows, weights)) in out.chunks_exact_mut(width).zip(tokens) {
        let mut pairs: Vec<(u32, f32)> = rows.iter().copied().zip(weights.to_vec()).collect();
        pairs.retain(|(row, _)| *row != NONE);
        match fault {
            Some(Gather::ExpertOrder) => pairs.sort_by_key(|(row, _)| *row),
            Some(Gather::SkipsZero) => pairs.retain(|(_, weight)| *weight != 0.0),
            _ => {}
        }
        for (h, out) in out.iter_mut().enumerate() {
            let mut sum = 0.0;
            for (row, weight) in &pairs {
                let weighted = weight * y[*row as usize * width + h].to_f32();
                sum += match fault {
                    Some(Gather::RoundsRows) => round_bf16(weighted).to_f32(),
                    _ => weighted,
                };
            }
            *out = round_bf16(sum);
        }
    }
    memory.put(op.out, out);
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
enum Shared {
    Ungated,
    RoundsOnce,
}

fn shared_expert(
    op: &SharedExpert,
    memory: &mut Memory<'_>,
    fault: Option<Shared>,
) -> Result<(), LaunchError> {
    let mut out = memory.take(op.out);
    let [_, width] = memory.dims(op.out);
    let gates = memory.get(op.gate);
    let inputs = memory.get(op.shared).iter().zip(memory.get(op.routed));
    for (i, (out, (shared, routed))) in out.iter_mut().zip(inputs).enumerate() {
        let gate = match fault {
            Some(Shared::Ungated) => 1.0,
            _ => round_bf16(sigmoid(gates[i / width].to_f32())).to_f32(),
        };
        let mut gated = gate * shared.to_f32();
        if fault != Some(Shared::RoundsOnce) {
            gated = round_bf16(gated).to_f32();
        }
        *out = round_bf16(gated + routed.to_f32());
    }
    memory.put(op.out, out);
    Ok(())
}
