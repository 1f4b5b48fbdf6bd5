//! Fast because the gate is one scalar a row: what remains is one pass over two rows.

use crate::level::per_level;
use crate::pool::Pool;
use crate::vector::widen;
use layerlet_core::memory::Memory;
use layerlet_core::numerics::{bf16, round_bf16, sigmoid};
use layerlet_core::ops::SharedExpert;

per_level! {
    /// Adds one row's gated shared expert to its routed sum.
    pub fn shared_expert_row(gate: bf16, shared: &[bf16], routed: &[bf16], out: &mut [bf16]) {
        let gate = widen(round_bf16(sigmoid(widen(gate))));
        for ((out, &shared), &routed) in out.iter_mut().zip(shared).zip(routed) {
            let gated = round_bf16(gate * widen(shared));
            *out = round_bf16(widen(gated) + widen(routed));
        }
    }
}

/// The operation.
pub fn run(op: &SharedExpert, pool: &Pool, memory: &mut Memory<'_>) {
    let level = pool.level;
    let mut out = memory.take(op.out);
    let [_, width] = memory.dims(op.out);
    let (shared, gate) = (memory.get(op.shared), memory.get(op.gate));
    let routed = memory.get(op.routed);
    pool.rows(4 * width, &mut out, width, |row, out| {
        let at = row * width;
        let (shared, routed) = (&shared[at..][..width], &routed[at..][..width]);
        shared_expert_row(level, gate[row], shared, routed, out);
    });
    memory.put(op.out, out);
}
