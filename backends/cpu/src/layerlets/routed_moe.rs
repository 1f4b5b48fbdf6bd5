//! Routed experts from routes to weighted sum: fast because rows go through both projections without
//! being moved, experts and columns side by side on all threads ([`super::experts`]).

use super::experts::*;
use crate::arena::zeros;
use crate::expert_prologue::Routes;
use crate::pool::Pool;
use layerlet_core::launch::Fused;
use layerlet_core::memory::Memory;

/// `None`: not stages that this kernel knows, or an id that names no expert.
pub fn run(fused: &Fused, pool: &Pool, memory: &mut Memory<'_>) -> Option<()> {
    let level = pool.level;
    let stages = RoutedStages::among(&fused.stages, memory)?;
    let source = &stages.mlp.up.source;
    if !are_all(&fused.stages, stages.count(), &[source]) {
        return None;
    }
    let experts = expert_count(stages.mlp.up.weights, memory);
    let routes = Routes::new(pool.arena(), memory.get(stages.prologue.ids), experts)?;
    let [_, k] = memory.dims(stages.prologue.ids);
    let mut out = memory.take(stages.gather.out);

    let rows = Rows::new(&[source], pool, memory).expect("one source");
    let mlp = Mlp::of(&stages.mlp, memory);
    let mut parts = [Part::routed(
        pool,
        mlp,
        rows.view(source, memory),
        &routes,
        k,
    )];
    let kept = run_parts(pool, &mut parts, fused.keep_intermediates);
    let (weights, y) = (memory.get(stages.gather.weights), parts[0].y);
    let row = || zeros(pool.arena(), mlp.n);
    pool.rows_with(k * mlp.n, &mut out, mlp.n, row, |token, out, sum| {
        let weights = &weights[token * k..][..k];
        gather(level, &routes, weights, token, y, sum, out);
    });

    let quantised = fused.keep_intermediates.then(|| rows.to_quantised());
    memory.put(stages.gather.out, out);
    if let (Some(quantised), [routed]) = (quantised, &kept[..]) {
        store_quantised(&[source], &quantised, memory);
        store_routed(&stages, &routes, routed, memory);
    }
    Some(())
}
