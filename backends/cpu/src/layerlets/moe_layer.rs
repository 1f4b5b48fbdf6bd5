//! The whole mixture-of-experts layer: fast because the shared expert is one more entry of the same
//! job list as the routed ones, the input is quantised once for all, and the last pass over a token
//! does weighted sum, gate and addition together.

use super::experts::*;
use super::stages::{LinearStage, MlpStages, Source, find, linear};
use crate::arena::zeros;
use crate::expert_prologue::Routes;
use crate::pool::Pool;
use crate::router_top_k::route_rows;
use crate::shared_expert::shared_expert_row;
use layerlet_core::launch::Fused;
use layerlet_core::memory::Memory;
use layerlet_core::numerics::bf16;
use layerlet_core::ops::{RouterTopK, SharedExpert};
use std::sync::{Mutex, PoisonError};

struct Stages<'a> {
    router: LinearStage,
    top_k: &'a RouterTopK,
    routed: RoutedStages<'a>,
    gate: LinearStage,
    shared: MlpStages,
    sum: &'a SharedExpert,
}

impl Stages<'_> {
    /// Where every linear over the layer's input takes it from.
    fn sources(&self) -> [&Source; 4] {
        [
            &self.router.source,
            &self.routed.mlp.up.source,
            &self.gate.source,
            &self.shared.up.source,
        ]
    }
}

fn recognise<'a>(fused: &'a Fused, memory: &Memory<'_>) -> Option<Stages<'a>> {
    let stages = &fused.stages;
    let sum = find!(stages, SharedExpert(op))?;
    let routed = RoutedStages::among(stages, memory)?;
    let top_k = find!(stages, RouterTopK(op)
        if op.ids == routed.prologue.ids && op.weights == routed.gather.weights)?;
    let down = linear(stages, memory, sum.shared)?;
    let recognised = Stages {
        router: linear(stages, memory, top_k.logits)?,
        top_k,
        gate: linear(stages, memory, sum.gate)?,
        shared: MlpStages::ending_in(stages, memory, down, linear)?,
        sum,
        routed,
    };
    // Router, top-k, gate and sum, besides the two chains.
    let count = 4 + recognised.routed.count() + recognised.shared.count();
    let complete =
        recognised.routed.gather.out == sum.routed && are_all(stages, count, &recognised.sources());
    complete.then_some(recognised)
}

/// `None`: not stages that this kernel knows.
pub fn run(fused: &Fused, pool: &Pool, memory: &mut Memory<'_>) -> Option<()> {
    let stages = recognise(fused, memory)?;
    let [_, k] = memory.dims(stages.top_k.ids);
    let mut out = memory.take(stages.sum.out);
    let done = forward(&stages, fused.keep_intermediates, pool, memory, k, &mut out);
    memory.put(stages.sum.out, out);
    if let Some(kept) = done? {
        kept.store(&stages, pool, memory);
    }
    Some(())
}

/// Everything that only the stages see.
struct Intermediates {
    quantised: (Vec<i8>, Vec<f32>),
    logits: Vec<bf16>,
    ids: Vec<u32>,
    weights: Vec<f32>,
    /// The routed experts, then the shared one.
    parts: Vec<Kept>,
    routed: Vec<bf16>,
    gate: Vec<bf16>,
}

fn forward(
    stages: &Stages<'_>,
    keep: bool,
    pool: &Pool,
    memory: &Memory<'_>,
    k: usize,
    out: &mut [bf16],
) -> Option<Option<Intermediates>> {
    let level = pool.level;
    let arena = pool.arena();
    let rows = Rows::new(&stages.sources(), pool, memory)?;
    let project = |linear: &LinearStage| {
        let out = zeros(arena, memory.get(linear.out).len());
        let view = rows.view(&linear.source, memory);
        let weights = linear.weights.get(memory);
        crate::linear::linear(pool, weights, linear.k, linear.n, out, |rows, input| {
            rows.for_each(|row| view.push(linear.k, row, input));
        });
        out
    };
    let (logits, gate) = (project(&stages.router), project(&stages.gate));
    let tokens = gate.len();
    let (ids, weights) = (zeros(arena, tokens * k), zeros(arena, tokens * k));
    let row_seq = memory.get(stages.top_k.row_seq);
    route_rows(pool, logits, row_seq, stages.router.n, k, ids, weights);

    let experts = expert_count(stages.routed.mlp.up.weights, memory);
    let routes = Routes::new(arena, ids, experts)?;
    let (routed_mlp, shared_mlp) = (
        Mlp::of(&stages.routed.mlp, memory),
        Mlp::of(&stages.shared, memory),
    );
    let width = routed_mlp.n;
    let routed_rows = rows.view(&stages.routed.mlp.up.source, memory);
    let shared_rows = rows.view(&stages.shared.up.source, memory);
    let mut parts = [
        Part::routed(pool, routed_mlp, routed_rows, &routes, k),
        Part::shared(pool, shared_mlp, shared_rows, tokens),
    ];
    let kept = run_parts(pool, &mut parts, keep);
    let [y, shared] = [parts[0].y, parts[1].y];

    let routed_out = Mutex::new(vec![bf16::ZERO; if keep { shared.len() } else { 0 }]);
    let room = || (zeros::<f32>(arena, width), zeros::<bf16>(arena, width));
    let weights = &*weights;
    pool.rows_with(
        (k + 4) * width,
        out,
        width,
        room,
        |token, out, (sum, routed)| {
            let weights = &weights[token * k..][..k];
            gather(level, &routes, weights, token, y, sum, routed);
            let shared = &shared[token * width..][..width];
            shared_expert_row(level, gate[token], shared, routed, out);
            if keep {
                let mut kept = routed_out.lock().unwrap_or_else(PoisonError::into_inner);
                kept[token * width..][..width].copy_from_slice(routed);
            }
        },
    );
    Some(keep.then(|| {
        Intermediates {
            quantised: rows.to_quantised(),
            logits: logits.to_vec(),
            ids: ids.to_vec(),
            weights: weights.to_vec(),
            parts: kept,
            routed: routed_out
                .into_inner()
                .unwrap_or_else(PoisonError::into_inner),
            gate: gate.to_vec(),
        }
    }))
}

impl Intermediates {
    fn store(&self, stages: &Stages<'_>, pool: &Pool, memory: &mut Memory<'_>) {
        store_quantised(&stages.sources(), &self.quantised, memory);
        let mut put = |buffer, content: &[bf16]| memory.get_mut(buffer).copy_from_slice(content);
        put(stages.router.out, &self.logits);
        put(stages.routed.gather.out, &self.routed);
        put(stages.gate.out, &self.gate);
        memory.get_mut(stages.top_k.ids).copy_from_slice(&self.ids);
        let weights = memory.get_mut(stages.top_k.weights);
        weights.copy_from_slice(&self.weights);
        let experts = expert_count(stages.routed.mlp.up.weights, memory);
        let routes = Routes::new(pool.arena(), &self.ids, experts).expect("they were routed");
        store_routed(&stages.routed, &routes, &self.parts[0], memory);
        store_part(&stages.shared, &self.parts[1], memory);
    }
}
