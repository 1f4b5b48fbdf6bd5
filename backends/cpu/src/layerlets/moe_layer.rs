//! The whole mixture-of-experts layer: fast because the shared expert is one more entry of the same
//! job list as the routed ones, the input is quantised once for all, and the last pass over a token
//! does weighted sum, gate and addition together.

use super::experts::*;
use super::stages::{LinearStage, MlpStages, Source, find, linear};
use crate::expert_prologue::Routes;
use crate::pool::Pool;
use crate::router_top_k::route_rows;
use crate::shared_expert::shared_expert_row;
use layerlet_core::launch::Fused;
use layerlet_core::memory::Memory;
use layerlet_core::numerics::bf16;
use layerlet_core::ops::{RouterTopK, SharedExpert};

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
        kept.store(&stages, memory);
    }
    Some(())
}

/// Everything that only the stages see.
struct Intermediates {
    quantised: (Vec<i8>, Vec<f32>),
    logits: Vec<bf16>,
    ids: Vec<u32>,
    weights: Vec<f32>,
    routes: Routes,
    y: Vec<bf16>,
    inner: Vec<Kept>,
    routed: Vec<bf16>,
    gate: Vec<bf16>,
    shared: Vec<bf16>,
}

fn forward(
    stages: &Stages<'_>,
    keep: bool,
    pool: &Pool,
    memory: &Memory<'_>,
    k: usize,
    out: &mut [bf16],
) -> Option<Option<Intermediates>> {
    let rows = Rows::new(&stages.sources(), pool, memory)?;
    let project = |linear: &LinearStage| {
        let mut out = vec![bf16::ZERO; memory.get(linear.out).len()];
        let view = rows.view(&linear.source, memory);
        let weights = linear.weights.get(memory);
        crate::linear::linear(pool, weights, linear.k, linear.n, &mut out, |rows| {
            view.input(pool.level, linear.k, rows)
        });
        out
    };
    let (logits, gate) = (project(&stages.router), project(&stages.gate));
    let (mut ids, mut weights) = (vec![0; gate.len() * k], vec![0.0; gate.len() * k]);
    let row_seq = memory.get(stages.top_k.row_seq);
    route_rows(
        pool,
        &logits,
        row_seq,
        stages.router.n,
        k,
        &mut ids,
        &mut weights,
    );

    let experts = expert_count(stages.routed.mlp.up.weights, memory);
    let routes = Routes::new(&ids, experts)?;
    let (routed_mlp, shared_mlp) = (
        Mlp::of(&stages.routed.mlp, memory),
        Mlp::of(&stages.shared, memory),
    );
    let width = routed_mlp.n;
    let mut y = vec![bf16::ZERO; routes.slot_of_row.len() * width];
    let mut shared = vec![bf16::ZERO; out.len()];
    let routed_rows = rows.view(&stages.routed.mlp.up.source, memory);
    let shared_rows = rows.view(&stages.shared.up.source, memory);
    let mut jobs = shared_jobs(shared_mlp, &shared_rows, &mut shared);
    jobs.extend(expert_jobs(routed_mlp, &routed_rows, &routes, k, &mut y));
    let work = routes.slot_of_row.len() * routed_mlp.work() + gate.len() * shared_mlp.work();
    let inner = pool.map(work, jobs, |job| job.run(pool.level, keep));

    let rows_out: Vec<_> = out.chunks_exact_mut(width).enumerate().collect();
    let routed = pool.map((k + 4) * shared.len(), rows_out, |(token, out)| {
        let mut routed = vec![bf16::ZERO; width];
        gather(
            pool.level,
            &routes,
            &weights[token * k..][..k],
            token,
            &y,
            &mut routed,
        );
        let shared = &shared[token * width..][..width];
        shared_expert_row(pool.level, gate[token], shared, &routed, out);
        keep.then_some(routed)
    });
    if !keep {
        return Some(None);
    }
    Some(Some(Intermediates {
        quantised: rows.into_quantised(),
        logits,
        ids,
        weights,
        y,
        inner: inner.into_iter().flatten().collect(),
        routed: routed.into_iter().flatten().flatten().collect(),
        routes,
        gate,
        shared,
    }))
}

impl Intermediates {
    fn store(&self, stages: &Stages<'_>, memory: &mut Memory<'_>) {
        store_quantised(&stages.sources(), &self.quantised, memory);
        memory
            .get_mut(stages.router.out)
            .copy_from_slice(&self.logits);
        memory.get_mut(stages.top_k.ids).copy_from_slice(&self.ids);
        memory
            .get_mut(stages.top_k.weights)
            .copy_from_slice(&self.weights);
        store_routed(&stages.routed, &self.routes, &self.y, &self.inner, memory);
        store_inner(&stages.shared, Part::Shared, &self.inner, memory);
        memory
            .get_mut(stages.routed.gather.out)
            .copy_from_slice(&self.routed);
        memory.get_mut(stages.gate.out).copy_from_slice(&self.gate);
        memory
            .get_mut(stages.sum.shared)
            .copy_from_slice(&self.shared);
    }
}
