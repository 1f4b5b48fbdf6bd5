//! Mutants of sampling.

use super::{Mutant, mutant};
use layerlet_core::NONE;
use layerlet_core::launch::{LaunchError, Operation};
use layerlet_core::memory::Memory;
use layerlet_core::numerics::{bf16, draw_u64, exp};
use layerlet_core::ops::{Sample, argmax};
use std::cmp::Reverse;

pub const MUTANTS: &[Mutant] = &[
    mutant!(
        "sample",
        "drops what min-p meets exactly",
        Sample,
        |op, m, fault: bool| sample(op, m, fault.then_some(Fault::MinPStrict))
    ),
    mutant!(
        "sample",
        "keeps all ties with the last of top-k",
        Sample,
        |op, m, fault: bool| sample(op, m, fault.then_some(Fault::KeepsTies))
    ),
    mutant!(
        "sample",
        "takes top-p of everything, not of what the other filters left",
        Sample,
        |op, m, fault: bool| sample(op, m, fault.then_some(Fault::TopPOfAll))
    ),
    mutant!(
        "sample",
        "walks the kept tokens by rank",
        Sample,
        |op, m, fault: bool| sample(op, m, fault.then_some(Fault::WalksByRank))
    ),
    mutant!(
        "sample",
        "draws by the row's number instead of its position",
        Sample,
        |op, m, fault: bool| sample(op, m, fault.then_some(Fault::DrawsByRow))
    ),
];

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    MinPStrict,
    KeepsTies,
    TopPOfAll,
    WalksByRank,
    DrawsByRow,
}

fn sample(op: &Sample, memory: &mut Memory<'_>, fault: Option<Fault>) -> Result<(), LaunchError> {
    let mut tokens = memory.take(op.tokens);
    let mut outcome = Ok(());
    for (row, token) in tokens.iter_mut().enumerate() {
        *token = NONE;
        if memory.get(op.out_rows)[row] == NONE {
            continue;
        }
        match penalised(op, memory, row) {
            Ok(logits) => *token = choose(op, memory, row, logits, fault),
            Err(e) => outcome = Err(e),
        }
    }
    memory.put(op.tokens, tokens);
    outcome
}

/// A row's logits after the penalties.
fn penalised(op: &Sample, memory: &Memory<'_>, row: usize) -> Result<Vec<f32>, LaunchError> {
    let [_, vocab] = memory.dims(op.logits);
    let starts = memory.get(op.history_start);
    let [start, split, end] = [
        starts[row],
        memory.get(op.history_generated)[row],
        starts[row + 1],
    ];
    let history = memory.get(op.history);
    let ordered = start <= split && split <= end && end as usize <= history.len();
    let ids = history.get(start as usize..end as usize).unwrap_or(&[]);
    if !ordered || ids.iter().any(|id| *id as usize >= vocab) {
        let name = Sample::NAME;
        return Err(LaunchError::step_data(name, "a history", split, "ids"));
    }
    let generated = &ids[(split - start) as usize..];
    let parameter = |of| memory.get(of)[row];
    let [repetition, presence, frequency] = [
        parameter(op.repetition_penalty),
        parameter(op.presence_penalty),
        parameter(op.frequency_penalty),
    ];
    let logits = &memory.get(op.logits)[row * vocab..][..vocab];
    let penalise = |(id, logit): (u32, &bf16)| {
        let mut l = logit.to_f32();
        if ids.contains(&id) {
            l = match l > 0.0 {
                true => l / repetition,
                false => l * repetition,
            };
        }
        let n = generated.iter().filter(|other| **other == id).count();
        match n {
            0 => l,
            n => (l - frequency * n as f32) - presence,
        }
    };
    Ok((0..).zip(logits).map(penalise).collect())
}

/// 2^32.
const ONE: f64 = 4_294_967_296.0;

fn choose(
    op: &Sample,
    memory: &Memory<'_>,
    row: usize,
    mut logits: Vec<f32>,
    fault: Option<Fault>,
) -> u32 {
    let temperature = memory.get(op.temperature)[row];
    if temperature == 0.0 {
        return argmax(logits);
    }
    logits.iter_mut().for_each(|l| *l /= temperature);
    let mut kept = kept(op, memory, row, &weights(&logits), &logits, fault);
    if kept.is_empty() {
        return argmax(logits);
    }
    if fault != Some(Fault::WalksByRank) {
        kept.sort_unstable();
    }
    let position = match fault {
        Some(Fault::DrawsByRow) => row as u32,
        _ => memory.get(op.draw_position)[row],
    };
    let [low, high] = [0, 1].map(|word| u64::from(memory.get(op.seed)[2 * row + word]));
    let total: u64 = kept.iter().map(|(_, weight)| weight).sum();
    let bits = u128::from(draw_u64(high << 32 | low, position));
    let drawn = ((bits * u128::from(total)) >> 64) as u64;
    let mut sum = 0;
    let chosen = kept.iter().find(|(_, weight)| {
        sum += weight;
        sum > drawn
    });
    chosen.map_or(NONE, |(id, _)| *id)
}

fn weights(logits: &[f32]) -> Vec<u64> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weight = |l: &f32| match *l {
        l if l.is_nan() || l == f32::NEG_INFINITY => 0,
        l if l == largest => 1 << 32,
        l => (f64::from(exp(l - largest)) * ONE) as u64,
    };
    logits.iter().map(weight).collect()
}

/// Ids that pass the filters with their weights, by rank.
fn kept(
    op: &Sample,
    memory: &Memory<'_>,
    row: usize,
    weights: &[u64],
    logits: &[f32],
    fault: Option<Fault>,
) -> Vec<(u32, u64)> {
    let mut ranked: Vec<(u32, u64)> = (0..).zip(weights.iter().copied()).collect();
    ranked.retain(|(_, weight)| *weight > 0);
    ranked.sort_by(|(a, _), (b, _)| {
        let [a, b] = [a, b].map(|id| (logits[*id as usize], Reverse(*id)));
        b.partial_cmp(&a).expect("a NaN has no weight")
    });
    let everything: u64 = ranked.iter().map(|(_, weight)| weight).sum();
    let top_k = match memory.get(op.top_k)[row] {
        0 => ranked.len(),
        k => ranked.len().min(k as usize),
    };
    let ties = match (fault, ranked.get(top_k.wrapping_sub(1))) {
        (Some(Fault::KeepsTies), Some((last, _))) => {
            let last = logits[*last as usize];
            let after = ranked[top_k..].iter();
            after
                .take_while(|(id, _)| logits[*id as usize] == last)
                .count()
        }
        _ => 0,
    };
    ranked.truncate(top_k + ties);
    let part = |p: f32| (f64::from(p) * ONE) as u64;
    let least = part(memory.get(op.min_p)[row]);
    let mut rank = 0;
    ranked.retain(|(_, weight)| {
        rank += 1;
        let reaches = match fault {
            Some(Fault::MinPStrict) => *weight > least,
            _ => *weight >= least,
        };
        rank == 1 || reaches
    });
    let top_p = memory.get(op.top_p)[row];
    if top_p < 1.0 {
        let total = match fault {
            Some(Fault::TopPOfAll) => everything,
            _ => ranked.iter().map(|(_, weight)| weight).sum(),
        };
        let wanted = u128::from(part(top_p)) * u128::from(total);
        let mut before = 0u128;
        let mut rank = 0;
        ranked.retain(|(_, weight)| {
            rank += 1;
            let keep = rank == 1 || before << 32 < wanted;
            before += u128::from(*weight);
            keep
        });
    }
    ranked
}
