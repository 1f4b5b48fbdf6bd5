//! Mutants of what mixes tokens: embedding, convolution, delta rule, rotation, cache, attention.

use super::{Mutant, misread, mutant};
use layerlet_core::NONE;
use layerlet_core::launch::{LaunchError, Operation};
use layerlet_core::memory::Memory;
use layerlet_core::numerics::{bf16, exp, lane_sum, round_bf16, rsqrt, sigmoid, silu, softplus};
use layerlet_core::ops::{CausalConv1d, DeltaGates, GatedDeltaRule, GatedRmsNorm, KvAppend, Rope};

pub const MUTANTS: &[Mutant] = &[
    mutant!(
        "embedding",
        "looks inert rows up like any other",
        Embedding,
        |op, m, fault| { misread(op, m, op.row_seq, fault, |rows| rows.fill(0)) }
    ),
    mutant!(
        "causal_conv1d",
        "gives fresh sequences the history of slot 0",
        CausalConv1d,
        |op, m, fault| { misread(op, m, op.state_read, fault, stale) }
    ),
    mutant!(
        "causal_conv1d",
        "runs the taps from the newest to the oldest",
        CausalConv1d,
        |op, m, fault| {
            let [_, width] = m.dims(op.weight);
            misread(op, m, op.weight, fault, |taps: &mut [f32]| {
                taps.chunks_exact_mut(width).for_each(<[f32]>::reverse);
            })
        }
    ),
    mutant!(
        "causal_conv1d",
        "keeps no state but the last",
        CausalConv1d,
        |op: &CausalConv1d, m, fault| { misread(op, m, op.state_write, fault, forgets) }
    ),
    mutant!(
        "delta_gates",
        "lets infinity times zero through",
        DeltaGates,
        delta_gates
    ),
    mutant!(
        "delta_gates",
        "takes the first head's A_log for all",
        DeltaGates,
        |op, m, fault| { misread(op, m, op.a_log, fault, |a_log| a_log.fill(a_log[0])) }
    ),
    mutant!(
        "gated_delta_rule",
        "gives fresh sequences the state of slot 0",
        GatedDeltaRule,
        |op, m, fault| { misread(op, m, op.state_read, fault, stale) }
    ),
    mutant!(
        "gated_delta_rule",
        "keeps no state but the last",
        GatedDeltaRule,
        |op: &GatedDeltaRule, m, fault| { misread(op, m, op.state_write, fault, forgets) }
    ),
    mutant!(
        "gated_delta_rule",
        "scales q before its norm's epsilon",
        GatedDeltaRule,
        |op: &GatedDeltaRule, m, fault| {
            let l2_eps = if fault { op.l2_eps * 12.0 } else { op.l2_eps };
            GatedDeltaRule {
                l2_eps,
                ..op.clone()
            }
            .run(m)
        }
    ),
    mutant!(
        "gated_delta_rule",
        "takes the beta of the head before",
        GatedDeltaRule,
        |op, m, fault| { misread(op, m, op.beta, fault, |beta| beta.rotate_right(1)) }
    ),
    mutant!(
        "gated_rms_norm",
        "rounds before the gate",
        GatedRmsNorm,
        |op, m, fault| {
            gated_rms_norm(
                op,
                m,
                if fault {
                    rounded_twice
                } else {
                    |x, s, w, g| round_bf16(((x * s) * w) * silu(g))
                },
            )
        }
    ),
    mutant!(
        "gated_rms_norm",
        "multiplies gate and weight first",
        GatedRmsNorm,
        |op, m, fault| {
            gated_rms_norm(
                op,
                m,
                if fault {
                    |x, s, w, g| round_bf16((x * s) * (w * silu(g)))
                } else {
                    |x, s, w, g| round_bf16(((x * s) * w) * silu(g))
                },
            )
        }
    ),
    mutant!(
        "rope",
        "rotates neighbours instead of halves",
        Rope,
        |op, m, fault| { rope(op, m, fault) }
    ),
    mutant!(
        "rope",
        "forgets which position a row has",
        Rope,
        |op, m, fault| {
            misread(op, m, op.positions, fault, |positions| {
                positions.rotate_right(1)
            })
        }
    ),
    mutant!(
        "kv_append",
        "takes pages in order",
        KvAppend,
        |op, m, fault| {
            misread(op, m, op.page_table, fault, |pages| {
                (0..).zip(pages).for_each(|(n, page)| *page = n % 7);
            })
        }
    ),
    mutant!(
        "kv_append",
        "swaps keys and values",
        KvAppend,
        |op: &KvAppend, m, fault| {
            let (k, v) = if fault { (op.v, op.k) } else { (op.k, op.v) };
            KvAppend { k, v, ..op.clone() }.run(m)
        }
    ),
    mutant!(
        "paged_attention",
        "looks one position ahead",
        PagedAttention,
        |op, m, fault| {
            misread(op, m, op.positions, fault, |positions| {
                positions.iter_mut().for_each(|p| *p = (*p + 1).min(149));
            })
        }
    ),
    mutant!(
        "paged_attention",
        "takes pages in order",
        PagedAttention,
        |op, m, fault| {
            misread(op, m, op.page_table, fault, |pages| {
                (0..).zip(pages).for_each(|(n, page)| *page = n);
            })
        }
    ),
    mutant!(
        "paged_attention",
        "leaves the gate out",
        PagedAttention,
        |op, m, fault| {
            misread(op, m, op.q_gate, fault, |gate: &mut [bf16]| {
                gate.fill(bf16::from_f32(80.0))
            })
        }
    ),
];

/// Slot 0 where there should be none.
fn stale(slots: &mut [u32]) {
    slots
        .iter_mut()
        .filter(|slot| **slot == NONE)
        .for_each(|slot| *slot = 0);
}

/// Only the last row that keeps its state does.
fn forgets(slots: &mut [u32]) {
    let kept = slots.iter_mut().rev().filter(|slot| **slot != NONE);
    kept.skip(1).for_each(|slot| *slot = NONE);
}

fn delta_gates(op: &DeltaGates, m: &mut Memory<'_>, fault: bool) -> Result<(), LaunchError> {
    let bound = if fault { f32::INFINITY } else { f32::MAX };
    // Not `min`: that would hide a NaN.
    let finite = |y: f32| if y > bound { bound } else { y };
    let (mut decay, mut beta) = (m.take(op.decay), m.take(op.beta));
    let heads = m.get(op.a_log).len();
    let rows = m.get(op.a).iter().zip(m.get(op.b));
    let out = decay.iter_mut().zip(&mut beta);
    for (n, ((a, b), (decay, beta))) in rows.zip(out).enumerate() {
        let head = n % heads;
        let rate = finite(exp(m.get(op.a_log)[head]));
        let step = finite(softplus(a.to_f32() + m.get(op.dt_bias)[head]));
        *decay = exp(-(rate * step));
        *beta = sigmoid(b.to_f32());
    }
    m.put(op.decay, decay);
    m.put(op.beta, beta);
    Ok(())
}

/// From value, scale, weight and gate.
type Gated = fn(f32, f32, f32, f32) -> bf16;

fn rounded_twice(x: f32, scale: f32, weight: f32, gate: f32) -> bf16 {
    round_bf16(round_bf16((x * scale) * weight).to_f32() * silu(gate))
}

fn gated_rms_norm(op: &GatedRmsNorm, m: &mut Memory<'_>, gated: Gated) -> Result<(), LaunchError> {
    let mut out = m.take(op.out);
    let weight = m.get(op.weight);
    let width = weight.len();
    let heads = m
        .get(op.x)
        .chunks_exact(width)
        .zip(m.get(op.gate).chunks_exact(width));
    for ((x, gate), out) in heads.zip(out.chunks_exact_mut(width)) {
        let squares = x.iter().map(|x| x.to_f32() * x.to_f32());
        let scale = rsqrt(lane_sum(squares) / width as f32 + op.eps);
        for (n, out) in out.iter_mut().enumerate() {
            *out = gated(x[n].to_f32(), scale, weight[n], gate[n].to_f32());
        }
    }
    m.put(op.out, out);
    Ok(())
}

fn rope(op: &Rope, m: &mut Memory<'_>, neighbours: bool) -> Result<(), LaunchError> {
    let [positions, _, half] = m.dims(op.table);
    let [_, width] = m.dims(op.x);
    if let Some(stray) = m
        .get(op.positions)
        .iter()
        .find(|p| **p as usize >= positions)
    {
        return Err(LaunchError::step_data(
            "rope",
            "a position",
            *stray,
            "within the table",
        ));
    }
    let mut out = m.get(op.x).to_vec();
    for (t, row) in out.chunks_exact_mut(width).enumerate() {
        let at = m.get(op.positions)[t] as usize * 2 * half;
        let (cos, sin) = m.get(op.table)[at..at + 2 * half].split_at(half);
        for head in row.chunks_exact_mut(op.head_dim) {
            let x = head.to_vec();
            for j in 0..half {
                let (first, second) = if neighbours {
                    (2 * j, 2 * j + 1)
                } else {
                    (j, j + half)
                };
                let (a, b) = (x[first].to_f32(), x[second].to_f32());
                let (cos, sin) = (cos[j].to_f32(), sin[j].to_f32());
                head[first] = round_bf16(a * cos - b * sin);
                head[second] = round_bf16(b * cos + a * sin);
            }
        }
    }
    m.get_mut(op.out).copy_from_slice(&out);
    Ok(())
}
