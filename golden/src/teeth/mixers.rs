//! Mutants that read what they should not: embedding, convolution, delta rule, rotation, cache,
//! attention, each by its definition on operands that were changed.

use super::{Mutant, misread, mutant};
use layerlet_core::NONE;
use layerlet_core::launch::Operation;
use layerlet_core::numerics::bf16;
use layerlet_core::ops::{CausalConv1d, GatedDeltaRule, KvAppend};

pub const MUTANTS: &[Mutant] = &[
    mutant!(
        "embedding",
        "looks inert rows up like any other",
        Embedding,
        |op, m, fault| { misread(op, m, op.row_seq, fault, |rows| rows.fill(0)) }
    ),
    mutant!(
        "embedding",
        "flushes subnormals to zero",
        Embedding,
        |op, m, fault| { misread(op, m, op.table, fault, flushed) }
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

fn flushed(table: &mut [bf16]) {
    let subnormal = table.iter_mut().filter(|x| x.to_bits() & 0x7f80 == 0);
    subnormal.for_each(|x| *x = bf16::ZERO);
}
