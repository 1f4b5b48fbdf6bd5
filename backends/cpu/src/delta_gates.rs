//! Fast because it is one straight-line expression a head, in rows of heads.

use crate::level::per_level;
use crate::pool::Pool;
use crate::vector::widen;
use layerlet_core::memory::Memory;
use layerlet_core::numerics::{bf16, delta_decay, sigmoid};
use layerlet_core::ops::DeltaGates;

/// Decay and beta of one head at one row.
#[inline(always)]
fn gates(a: bf16, b: bf16, a_log: f32, dt_bias: f32) -> (f32, f32) {
    (delta_decay(a_log, widen(a) + dt_bias), sigmoid(widen(b)))
}

per_level! {
    /// Gates of whole rows.
    pub fn gate_rows(
        a: &[bf16], b: &[bf16], a_log: &[f32], dt_bias: &[f32], decay: &mut [f32], beta: &mut [f32],
    ) {
        let heads = a_log.len();
        let rows = a.chunks_exact(heads).zip(b.chunks_exact(heads));
        let outs = decay.chunks_exact_mut(heads).zip(beta.chunks_exact_mut(heads));
        for ((a, b), (decay, beta)) in rows.zip(outs) {
            for h in 0..heads {
                (decay[h], beta[h]) = gates(a[h], b[h], a_log[h], dt_bias[h]);
            }
        }
    }
}

/// The operation.
pub fn run(op: &DeltaGates, pool: &Pool, memory: &mut Memory<'_>) {
    let level = pool.level;
    let (mut decay, mut beta) = (memory.take(op.decay), memory.take(op.beta));
    let [heads] = memory.dims(op.a_log);
    let (a, b) = (memory.get(op.a), memory.get(op.b));
    let (a_log, dt_bias) = (memory.get(op.a_log), memory.get(op.dt_bias));
    let work = 100 * decay.len();
    let rows = decay.len().checked_div(heads).unwrap_or(0);
    let block = heads * rows.div_ceil(pool.jobs_for(work)).max(1);
    let inputs = a.chunks(block).zip(b.chunks(block));
    let outputs = decay.chunks_mut(block).zip(beta.chunks_mut(block));
    pool.each(
        work,
        pool.list(inputs.zip(outputs)),
        |((a, b), (decay, beta))| {
            gate_rows(level, a, b, a_log, dt_bias, decay, beta);
        },
    );
    memory.put(op.decay, decay);
    memory.put(op.beta, beta);
}
