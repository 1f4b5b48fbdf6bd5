//! Routed experts from routes to weighted sum: fast because every expert's rows go through both
//! projections as one job ([`super::experts`]), experts side by side on all threads.

use super::experts::*;
use crate::expert_prologue::Routes;
use crate::pool::Pool;
use layerlet_core::launch::Fused;
use layerlet_core::memory::Memory;
use layerlet_core::numerics::bf16;

/// `None`: not stages that this kernel knows, or an id that names no expert.
pub fn run(fused: &Fused, pool: &Pool, memory: &mut Memory<'_>) -> Option<()> {
    let stages = RoutedStages::among(&fused.stages, memory)?;
    let source = &stages.mlp.up.source;
    if !are_all(&fused.stages, stages.count(), &[source]) {
        return None;
    }
    let experts = expert_count(stages.mlp.up.weights, memory);
    let routes = Routes::new(memory.get(stages.prologue.ids), experts)?;
    let [_, k] = memory.dims(stages.prologue.ids);
    let mut out = memory.take(stages.gather.out);

    let rows = Rows::new(&[source], pool, memory).expect("one source");
    let mlp = Mlp::of(&stages.mlp, memory);
    let mut y = vec![bf16::ZERO; routes.slot_of_row.len() * mlp.n];
    let view = rows.view(source, memory);
    let jobs = expert_jobs(mlp, &view, &routes, k, &mut y);
    let work = routes.slot_of_row.len() * mlp.work();
    let keep = fused.keep_intermediates;
    let kept: Vec<_> = pool
        .map(work, jobs, |job| job.run(pool.level, keep))
        .into_iter()
        .flatten()
        .collect();
    let weights = memory.get(stages.gather.weights);
    pool.rows(k * mlp.n, &mut out, mlp.n, |token, out| {
        gather(
            pool.level,
            &routes,
            &weights[token * k..][..k],
            token,
            &y,
            out,
        );
    });

    let quantised = rows.into_quantised();
    memory.put(stages.gather.out, out);
    if keep {
        store_quantised(&[source], &quantised, memory);
        store_routed(&stages, &routes, &y, &kept, memory);
    }
    Some(())
}
