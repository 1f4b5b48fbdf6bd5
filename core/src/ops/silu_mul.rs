//! `silu(gate) * up`.
//!
//! ```text
//! out[m, i] = bf16(bf16(silu(gate_up[m, i])) * gate_up[m, I + i])
//! ```
//!
//! silu in f32, rounded to bf16, then the product, rounded again: two roundings, as transformers' eager
//! code and vLLM's `silu_and_mul` both do.

use crate::buffer::{BufferError, BufferTable};
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::{bf16, round_bf16, silu};
use alloc::vec::Vec;

operation! {
    /// Both halves of a fused gate/up projection.
    pub struct SiluMul {
        /// bf16 `[M, 2 * I]`: gate, then up
        read gate_up: bf16,
        /// bf16 `[M, I]`
        write out: bf16,
        ;
    }
}

impl Operation for SiluMul {
    const NAME: &'static str = "silu_mul";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        let check = || -> Result<(), BufferError> {
            let [rows, width] = buffers.dims(self.out)?;
            buffers.expect(self.gate_up, &[rows, 2 * width])?;
            Ok(())
        };
        check().map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let mut out = memory.take(self.out);
        let [_, width] = memory.dims(self.out);
        let rows = memory.get(self.gate_up).chunks_exact(2 * width);
        for (gate_up, out) in rows.zip(out.chunks_exact_mut(width)) {
            silu_mul_row(gate_up, out);
        }
        memory.put(self.out, out);
        Ok(())
    }
}

/// One row: gate, then up.
pub fn silu_mul_row(gate_up: &[bf16], out: &mut [bf16]) {
    let (gate, up) = gate_up.split_at(out.len());
    for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
        let activated = round_bf16(silu(gate.to_f32()));
        *out = round_bf16(activated.to_f32() * up.to_f32());
    }
}
