//! Fast because exp is straight-line code without branches, so that the loop becomes vector code.

use crate::level::per_level;
use crate::pool::Pool;
use crate::vector::widen;
use layerlet_core::memory::Memory;
use layerlet_core::numerics::{bf16, round_bf16, silu};
use layerlet_core::ops::SiluMul;

per_level! {
    /// One row: `gate_up` holds the gate half, then the up half.
    pub fn silu_mul_row(gate_up: &[bf16], out: &mut [bf16]) {
        let (gate, up) = gate_up.split_at(out.len());
        for ((out, &gate), &up) in out.iter_mut().zip(gate).zip(up) {
            let activated = round_bf16(silu(widen(gate)));
            *out = round_bf16(widen(activated) * widen(up));
        }
    }
}

/// The operation.
pub fn run(op: &SiluMul, pool: &Pool, memory: &mut Memory<'_>) {
    let level = pool.level;
    let mut out = memory.take(op.out);
    let [_, width] = memory.dims(op.out);
    let gate_up = memory.get(op.gate_up);
    pool.rows(16 * width, &mut out, width, |row, out| {
        silu_mul_row(level, &gate_up[row * 2 * width..][..2 * width], out);
    });
    memory.put(op.out, out);
}
