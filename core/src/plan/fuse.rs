//! The rewrite that puts fused kernels into a plan: stages that stand together become one launch.
//!
//! What a fused launch computes is by definition what its stages compute, so the rewrite cannot change a
//! byte that anybody reads. Buffers that only the stages use are left as they are (poison) unless
//! `keep_intermediates` asks for them; it is set here when an output or a later launch needs one.

use super::Plan;
use crate::buffer::{BufferId, Role};
use crate::launch::{Access, Fused, Launch, Layerlet, Operand};
use alloc::vec::Vec;

/// One element of a layerlet's pattern of operation names.
enum Part {
    /// Exactly one launch with one of these names.
    One(&'static [&'static str]),
    /// At most one.
    Maybe(&'static str),
    /// One or more.
    Many(&'static str),
}

use Part::{Many, Maybe, One};

const LINEAR: &[&str] = &["linear_bf16", "linear_w8a8"];
const GROUPED: &[&str] = &["grouped_linear_bf16", "grouped_linear_w8a8"];
const QUANTIZE: Part = Maybe("quantize_rows");

const ROUTED_MOE: &[Part] = &[
    One(&["expert_prologue"]),
    QUANTIZE,
    One(GROUPED),
    One(&["silu_mul"]),
    QUANTIZE,
    One(GROUPED),
    One(&["weighted_gather"]),
];

const ROUTER: &[Part] = &[QUANTIZE, One(LINEAR), One(&["router_top_k"])];

const SHARED: &[Part] = &[
    QUANTIZE,
    One(LINEAR),
    One(LINEAR),
    One(&["silu_mul"]),
    QUANTIZE,
    One(LINEAR),
    One(&["shared_expert"]),
];

fn pattern(layerlet: Layerlet) -> Vec<&'static Part> {
    let parts: &[&'static [Part]] = match layerlet {
        Layerlet::QuantizeLinear => &[&[One(&["quantize_rows"]), Many("linear_w8a8")]],
        Layerlet::RoutedMoe => &[ROUTED_MOE],
        Layerlet::MoeLayer => &[ROUTER, ROUTED_MOE, SHARED],
        Layerlet::GdnLayer => &[&[
            One(&["causal_conv1d"]),
            One(&["delta_gates"]),
            One(&["gated_delta_rule"]),
            One(&["gated_rms_norm"]),
        ]],
        Layerlet::AttentionLayer => &[&[
            One(&["rms_norm"]),
            One(&["rms_norm"]),
            One(&["rope"]),
            One(&["rope"]),
            One(&["kv_append"]),
            One(&["paged_attention"]),
        ]],
        Layerlet::LmHeadArgmax => &[&[One(&["lm_head"]), One(&["argmax"])]],
    };
    parts.iter().flat_map(|p| p.iter()).collect()
}

/// Replaces stages by the kernels a backend offers, the widest that fits first.
pub fn fuse(plan: &Plan, layerlets: &[Layerlet]) -> Plan {
    let base = unfuse(plan).launches;
    let mut fused = Plan {
        launches: Vec::new(),
        ..plan.clone()
    };
    let mut at = 0;
    while at < base.len() {
        let offered = Layerlet::ALL.iter().filter(|l| layerlets.contains(l));
        let found = offered
            .copied()
            .find_map(|l| Some((l, matched(l, &base[at..])?)));
        match found {
            Some((layerlet, n)) => {
                let stages = base[at..at + n].to_vec();
                let keep_intermediates = leaves(plan, layerlet, &base, at, n);
                fused.launches.push(Launch::Fused(Fused {
                    layerlet,
                    stages,
                    keep_intermediates,
                }));
                at += n;
            }
            None => {
                fused.launches.push(base[at].clone());
                at += 1;
            }
        }
    }
    fused
}

/// The plan with every fused launch taken apart into its stages.
pub fn unfuse(plan: &Plan) -> Plan {
    let stages = |launch: &Launch| match launch {
        Launch::Fused(f) => f.stages.clone(),
        launch => alloc::vec![launch.clone()],
    };
    Plan {
        launches: plan.launches.iter().flat_map(stages).collect(),
        ..plan.clone()
    }
}

/// The plan with every fused launch storing what its stages store: for finding the stage that differs.
pub fn keep_intermediates(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    for launch in &mut plan.launches {
        if let Launch::Fused(fused) = launch {
            fused.keep_intermediates = true;
        }
    }
    plan
}

/// How many launches from the first on are the stages of a layerlet.
fn matched(layerlet: Layerlet, launches: &[Launch]) -> Option<usize> {
    let mut n = 0;
    for part in pattern(layerlet) {
        let name = |n: usize| launches.get(n).map(Launch::name);
        match part {
            One(names) if name(n).is_some_and(|op| names.contains(&op)) => n += 1,
            One(_) => return None,
            Maybe(op) => n += usize::from(name(n) == Some(op)),
            Many(op) => {
                let count = (n..).take_while(|&n| name(n) == Some(op)).count();
                n += count;
                if count == 0 {
                    return None;
                }
            }
        }
    }
    connected(layerlet, &launches[..n]).then_some(n)
}

/// The names fit; the data must too: every stage after the first reads what an earlier one wrote. Stages that start
/// from outside data beside each other (the second norm, the shared expert) read what the first stages read.
fn connected(layerlet: Layerlet, stages: &[Launch]) -> bool {
    if layerlet == Layerlet::QuantizeLinear {
        let codes = written(&stages[..1]);
        return stages[1..]
            .iter()
            .all(|s| reads(s).any(|o| o.name == "codes" && codes.contains(&o.buffer)));
    }
    let result = written(&stages[stages.len() - 1..]);
    (0..stages.len() - 1).all(|n| {
        let later = &stages[n + 1..];
        let used = |id: &BufferId| {
            later
                .iter()
                .any(|s| s.operands().iter().any(|o| o.buffer == *id))
        };
        let state = stages[n].operands();
        let state = state
            .iter()
            .filter(|o| o.access == Access::ReadWrite)
            .map(|o| o.buffer);
        written(&stages[n..=n])
            .iter()
            .all(|id| used(id) || result.contains(id))
            && {
                let touched: Vec<BufferId> =
                    written(&stages[n..=n]).into_iter().chain(state).collect();
                touched.iter().any(used) || stages[n].name() == "kv_append"
            }
    })
}

/// Does anything outside need a buffer that the kernel would not store?
fn leaves(plan: &Plan, layerlet: Layerlet, launches: &[Launch], at: usize, n: usize) -> bool {
    let stages = &launches[at..at + n];
    let outside = |id: BufferId| {
        let output = plan.buffers.get(id).is_ok_and(|d| d.role == Role::Output);
        let read_later = launches[at + n..]
            .iter()
            .any(|l| reads(l).any(|o| o.buffer == id));
        output || read_later
    };
    internal(layerlet, stages).into_iter().any(outside)
}

/// Buffers that a kernel need not store: all that its stages write but its results.
pub(super) fn internal(layerlet: Layerlet, stages: &[Launch]) -> Vec<BufferId> {
    let results = match layerlet {
        Layerlet::QuantizeLinear => written(&stages[1..]),
        _ => written(&stages[stages.len() - 1..]),
    };
    written(stages)
        .into_iter()
        .filter(|id| !results.contains(id))
        .collect()
}

fn reads(launch: &Launch) -> impl Iterator<Item = Operand> {
    launch
        .operands()
        .into_iter()
        .filter(|o| o.access != Access::Write)
}

fn written(launches: &[Launch]) -> Vec<BufferId> {
    let operands = launches.iter().flat_map(Launch::operands);
    operands
        .filter(|o| o.access == Access::Write)
        .map(|o| o.buffer)
        .collect()
}
