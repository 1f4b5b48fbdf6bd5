//! Fast because exp over the experts is vector code, and because the choice is k maxima over i16 keys
//! that order as the logits do.

use crate::arena::{Bump, zeros};
use crate::argmax::order;
use crate::level::{Level, per_level};
use crate::pool::Pool;
use crate::vector::{sum, widen};
use layerlet_core::NONE;
use layerlet_core::memory::Memory;
use layerlet_core::numerics::{bf16, exp};
use layerlet_core::ops::RouterTopK;

/// The key of an expert that is chosen already: below NaN.
const TAKEN: i16 = i16::MIN;

/// Scratch of one thread.
struct Router<'b> {
    keys: &'b mut [i16],
    weights: &'b mut [f32],
}

impl<'b> Router<'b> {
    fn room(arena: &'b Bump, experts: usize) -> Router<'b> {
        Router {
            keys: arena.alloc_slice_fill_copy(experts, TAKEN),
            weights: zeros(arena, experts),
        }
    }

    /// Routes of one row.
    fn route(&mut self, level: Level, logits: &[bf16], ids: &mut [u32], weights: &mut [f32]) {
        for (key, &l) in self.keys.iter_mut().zip(logits) {
            *key = order(l);
        }
        let best = self.best();
        let max = match widen(logits[best]) {
            nan if nan.is_nan() => f32::NEG_INFINITY,
            max => max,
        };
        let total = softmax_terms(level, logits, max, self.weights);
        for (id, weight) in ids.iter_mut().zip(&mut *weights) {
            let best = self.best();
            self.keys[best] = TAKEN;
            *id = best as u32;
            *weight = self.weights[best] / total;
        }
        let sum = weights.iter().fold(0.0, |sum, w| sum + w);
        weights.iter_mut().for_each(|w| *w /= sum);
    }

    /// The best expert that is not taken, the lowest on ties.
    fn best(&self) -> usize {
        let best = self.keys.iter().fold(TAKEN, |best, &key| best.max(key));
        self.keys.iter().position(|&key| key == best).unwrap_or(0)
    }
}

per_level! {
    /// Unnormalised probabilities, and their sum. NaN counts as nothing.
    fn softmax_terms(logits: &[bf16], max: f32, terms: &mut [f32]) -> f32 {
        for (term, &l) in terms.iter_mut().zip(logits) {
            let e = exp(widen(l) - max);
            *term = if widen(l).is_nan() { 0.0 } else { e };
        }
        sum(terms)
    }
}

/// Routes of many rows; inert ones get no experts.
pub fn route_rows(
    pool: &Pool,
    logits: &[bf16],
    row_seq: &[u32],
    experts: usize,
    k: usize,
    ids: &mut [u32],
    weights: &mut [f32],
) {
    let level = pool.level;
    let work = logits.len() * (k + 16);
    let block = row_seq.len().div_ceil(pool.jobs_for(work)).max(1);
    let outs = ids.chunks_mut(block * k).zip(weights.chunks_mut(block * k));
    let jobs = pool.list(outs.enumerate());
    let room = || Router::room(pool.arena(), experts);
    pool.each_with(work, jobs, room, |(b, (ids, weights)), router| {
        let rows = ids.chunks_exact_mut(k).zip(weights.chunks_exact_mut(k));
        for (row, (ids, weights)) in (*b * block..).zip(rows) {
            if row_seq[row] == NONE {
                ids.fill(NONE);
                weights.fill(0.0);
            } else {
                let logits = &logits[row * experts..][..experts];
                router.route(level, logits, ids, weights);
            }
        }
    });
}

/// The operation.
pub fn run(op: &RouterTopK, pool: &Pool, memory: &mut Memory<'_>) {
    let (mut ids, mut weights) = (memory.take(op.ids), memory.take(op.weights));
    let [_, experts] = memory.dims(op.logits);
    let [_, k] = memory.dims(op.ids);
    let (logits, row_seq) = (memory.get(op.logits), memory.get(op.row_seq));
    route_rows(pool, logits, row_seq, experts, k, &mut ids, &mut weights);
    memory.put(op.ids, ids);
    memory.put(op.weights, weights);
}
