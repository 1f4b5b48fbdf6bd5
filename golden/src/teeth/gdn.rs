//! Mutants of the gated delta net: kernels written apart.

use super::{Mutant, mutant};
use layerlet_core::launch::LaunchError;
use layerlet_core::memory::Memory;
use layerlet_core::numerics::{
    bf16, exp, lane_sum, log1p, round_bf16, rsqrt, sigmoid, silu, softplus,
};
use layerlet_core::ops::{CausalConv1d, DeltaGates, GatedDeltaRule, GatedRmsNorm, StateSlots};

pub const MUTANTS: &[Mutant] = &[
    mutant!(
        "causal_conv1d",
        "rounds the sum before SiLU",
        CausalConv1d,
        |op, m, fault| { causal_conv1d(op, m, fault.then_some(Conv::RoundsTwice)) }
    ),
    mutant!(
        "causal_conv1d",
        "keeps the state before the row",
        CausalConv1d,
        |op, m, fault| { causal_conv1d(op, m, fault.then_some(Conv::WritesEarly)) }
    ),
    mutant!(
        "delta_gates",
        "multiplies infinity by zero",
        DeltaGates,
        |op, m, fault| { delta_gates(op, m, fault.then_some(Gates::Unclamped)) }
    ),
    mutant!(
        "delta_gates",
        "lets softplus overflow",
        DeltaGates,
        |op, m, fault| { delta_gates(op, m, fault.then_some(Gates::NoThreshold)) }
    ),
    mutant!(
        "delta_gates",
        "rounds beta to bf16",
        DeltaGates,
        |op, m, fault| { delta_gates(op, m, fault.then_some(Gates::NarrowBeta)) }
    ),
    mutant!(
        "gated_delta_rule",
        "takes key heads in turn, not in groups",
        GatedDeltaRule,
        |op, m, fault| { gated_delta_rule(op, m, fault.then_some(Rule::HeadsInTurn)) }
    ),
    mutant!(
        "gated_delta_rule",
        "reads the output before the update",
        GatedDeltaRule,
        |op, m, fault| { gated_delta_rule(op, m, fault.then_some(Rule::ReadsEarly)) }
    ),
    mutant!(
        "gated_delta_rule",
        "reads the state before it decays",
        GatedDeltaRule,
        |op, m, fault| { gated_delta_rule(op, m, fault.then_some(Rule::DecaysLate)) }
    ),
    mutant!(
        "gated_delta_rule",
        "stores the state as bf16",
        GatedDeltaRule,
        |op, m, fault| { gated_delta_rule(op, m, fault.then_some(Rule::NarrowState)) }
    ),
    mutant!(
        "gated_rms_norm",
        "rounds between norm and weight",
        GatedRmsNorm,
        |op, m, fault| { gated_rms_norm(op, m, fault.then_some(Norm::RoundsBeforeWeight)) }
    ),
    mutant!(
        "gated_rms_norm",
        "rounds before the gate",
        GatedRmsNorm,
        |op, m, fault| { gated_rms_norm(op, m, fault.then_some(Norm::RoundsBeforeGate)) }
    ),
    mutant!(
        "gated_rms_norm",
        "multiplies gate and weight first",
        GatedRmsNorm,
        |op, m, fault| { gated_rms_norm(op, m, fault.then_some(Norm::GateTimesWeight)) }
    ),
    mutant!(
        "gated_rms_norm",
        "gates before the norm",
        GatedRmsNorm,
        |op, m, fault| { gated_rms_norm(op, m, fault.then_some(Norm::GatesFirst)) }
    ),
];

#[derive(Clone, Copy, PartialEq)]
enum Conv {
    RoundsTwice,
    WritesEarly,
}

fn causal_conv1d(
    op: &CausalConv1d,
    memory: &mut Memory<'_>,
    fault: Option<Conv>,
) -> Result<(), LaunchError> {
    let [slots, depth, channels] = memory.dims(op.state);
    let [rows, reads, writes] = [op.seq_rows, op.state_read, op.state_write].map(|b| memory.get(b));
    let slots = StateSlots::new("causal_conv1d", rows, reads, writes, slots)?;
    let (mut state, mut out) = (memory.take(op.state), memory.take(op.out));
    let (x, weight) = (memory.get(op.x), memory.get(op.weight));
    let history = depth * channels;
    out.fill(bf16::ZERO);
    for sequence in &slots.sequences {
        let mut window = match sequence.read {
            Some(slot) => state[slot * history..][..history].to_vec(),
            None => vec![bf16::ZERO; history],
        };
        for t in sequence.rows.clone() {
            window.extend_from_slice(&x[t * channels..][..channels]);
            for c in 0..channels {
                let taps = &weight[c * (depth + 1)..][..depth + 1];
                out[t * channels + c] = convolve(taps, &window[c..], channels, fault);
            }
            let kept = match fault {
                Some(Conv::WritesEarly) => &window[..history],
                _ => &window[channels..],
            };
            if let Some(slot) = slots.writes[t] {
                state[slot * history..][..history].copy_from_slice(kept);
            }
            window.drain(..channels);
        }
    }
    memory.put(op.state, state);
    memory.put(op.out, out);
    Ok(())
}

fn convolve(taps: &[f32], window: &[bf16], channels: usize, fault: Option<Conv>) -> bf16 {
    let rows = window.iter().step_by(channels);
    let products = taps.iter().zip(rows).map(|(tap, x)| tap * x.to_f32());
    let mut sum = products.fold(0.0, |sum, product| sum + product);
    if fault == Some(Conv::RoundsTwice) {
        sum = round_bf16(sum).to_f32();
    }
    round_bf16(silu(sum))
}

#[derive(Clone, Copy, PartialEq)]
enum Gates {
    Unclamped,
    NoThreshold,
    NarrowBeta,
}

fn delta_gates(
    op: &DeltaGates,
    memory: &mut Memory<'_>,
    fault: Option<Gates>,
) -> Result<(), LaunchError> {
    let (mut decay, mut beta) = (memory.take(op.decay), memory.take(op.beta));
    let (a, b) = (memory.get(op.a), memory.get(op.b));
    let (a_log, dt_bias) = (memory.get(op.a_log), memory.get(op.dt_bias));
    let clamp = |x: f32| match fault {
        Some(Gates::Unclamped) => x,
        _ if x > f32::MAX => f32::MAX,
        _ => x,
    };
    for i in 0..a.len() {
        let head = i % a_log.len();
        let step = a[i].to_f32() + dt_bias[head];
        let step = match fault {
            Some(Gates::NoThreshold) => log1p(exp(step)),
            _ => softplus(step),
        };
        decay[i] = exp(-(clamp(exp(a_log[head])) * clamp(step)));
        let strength = sigmoid(b[i].to_f32());
        beta[i] = match fault {
            Some(Gates::NarrowBeta) => round_bf16(strength).to_f32(),
            _ => strength,
        };
    }
    memory.put(op.decay, decay);
    memory.put(op.beta, beta);
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
enum Rule {
    HeadsInTurn,
    ReadsEarly,
    DecaysLate,
    NarrowState,
}

fn gated_delta_rule(
    op: &GatedDeltaRule,
    memory: &mut Memory<'_>,
    fault: Option<Rule>,
) -> Result<(), LaunchError> {
    let [slots, heads, dk, dv] = memory.dims(op.state);
    let [rows, reads, writes] = [op.seq_rows, op.state_read, op.state_write].map(|b| memory.get(b));
    let slots = StateSlots::new("gated_delta_rule", rows, reads, writes, slots)?;
    let (mut state, mut out) = (memory.take(op.state), memory.take(op.out));
    let (decay, beta) = (memory.get(op.decay), memory.get(op.beta));
    let [_, columns] = memory.dims(op.qkv);
    out.fill(bf16::ZERO);
    for (sequence, head) in slots
        .sequences
        .iter()
        .flat_map(|s| (0..heads).map(move |h| (s, h)))
    {
        let place = |slot: usize| (slot * heads + head) * dk * dv;
        let mut own = match sequence.read {
            Some(slot) => state[place(slot)..][..dk * dv].to_vec(),
            None => vec![0.0; dk * dv],
        };
        let key_head = match fault {
            Some(Rule::HeadsInTurn) => head % op.key_heads,
            _ => head / (heads / op.key_heads),
        };
        for t in sequence.rows.clone() {
            let row = &memory.get(op.qkv)[t * columns..][..columns];
            let (q, k) = (
                &row[key_head * dk..],
                &row[(op.key_heads + key_head) * dk..],
            );
            let q = unit(&q[..dk], op.l2_eps).map(|q| q * op.scale).collect();
            let k = unit(&k[..dk], op.l2_eps).collect();
            let v = &row[2 * op.key_heads * dk + head * dv..][..dv];
            let gate = t * heads + head;
            let out = &mut out[gate * dv..][..dv];
            rule_row(&mut own, [q, k], v, (decay[gate], beta[gate]), fault, out);
            let Some(slot) = slots.writes[t] else {
                continue;
            };
            for (kept, own) in state[place(slot)..][..dk * dv].iter_mut().zip(&own) {
                *kept = match fault {
                    Some(Rule::NarrowState) => round_bf16(*own).to_f32(),
                    _ => *own,
                };
            }
        }
    }
    memory.put(op.state, state);
    memory.put(op.out, out);
    Ok(())
}

fn unit(x: &[bf16], eps: f32) -> impl Iterator<Item = f32> {
    let squares = lane_sum(x.iter().map(|x| x.to_f32() * x.to_f32()));
    let scale = rsqrt(squares + eps);
    x.iter().map(move |x| x.to_f32() * scale)
}

/// Column by column: columns of the state share nothing.
fn rule_row(
    state: &mut [f32],
    [q, k]: [Vec<f32>; 2],
    v: &[bf16],
    (decay, beta): (f32, f32),
    fault: Option<Rule>,
    out: &mut [bf16],
) {
    let dv = v.len();
    for (i, (v, out)) in v.iter().zip(out).enumerate() {
        let mut column: Vec<f32> = state.iter().skip(i).step_by(dv).copied().collect();
        let dot = |x: &[f32], column: &[f32]| lane_sum(column.iter().zip(x).map(|(s, x)| x * s));
        let before = dot(&k, &column);
        column.iter_mut().for_each(|s| *s *= decay);
        let read = match fault {
            Some(Rule::DecaysLate) => before,
            _ => dot(&k, &column),
        };
        let early = dot(&q, &column);
        let delta = (v.to_f32() - read) * beta;
        for (s, k) in column.iter_mut().zip(&k) {
            *s += k * delta;
        }
        *out = round_bf16(match fault {
            Some(Rule::ReadsEarly) => early,
            _ => dot(&q, &column),
        });
        for (s, new) in state.iter_mut().skip(i).step_by(dv).zip(column) {
            *s = new;
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Norm {
    RoundsBeforeWeight,
    RoundsBeforeGate,
    GateTimesWeight,
    GatesFirst,
}

fn gated_rms_norm(
    op: &GatedRmsNorm,
    memory: &mut Memory<'_>,
    fault: Option<Norm>,
) -> Result<(), LaunchError> {
    let mut out = memory.take(op.out);
    let weight = memory.get(op.weight);
    let width = weight.len();
    let heads = memory.get(op.x).chunks_exact(width);
    let heads = heads.zip(memory.get(op.gate).chunks_exact(width));
    for ((x, gate), out) in heads.zip(out.chunks_exact_mut(width)) {
        let gate = gate.iter().map(|gate| silu(gate.to_f32()));
        let x: Vec<f32> = match fault {
            Some(Norm::GatesFirst) => x
                .iter()
                .zip(gate.clone())
                .map(|(x, g)| x.to_f32() * g)
                .collect(),
            _ => x.iter().map(|x| x.to_f32()).collect(),
        };
        let scale = rsqrt(lane_sum(x.iter().map(|x| x * x)) / width as f32 + op.eps);
        for (((out, x), weight), gate) in out.iter_mut().zip(&x).zip(weight).zip(gate) {
            *out = match fault {
                Some(Norm::GatesFirst) => round_bf16(x * scale * weight),
                Some(Norm::RoundsBeforeWeight) => {
                    round_bf16(round_bf16(x * scale).to_f32() * weight * gate)
                }
                Some(Norm::RoundsBeforeGate) => {
                    round_bf16(round_bf16(x * scale * weight).to_f32() * gate)
                }
                Some(Norm::GateTimesWeight) => round_bf16(x * scale * (weight * gate)),
                None => round_bf16(x * scale * weight * gate),
            };
        }
    }
    memory.put(op.out, out);
    Ok(())
}
