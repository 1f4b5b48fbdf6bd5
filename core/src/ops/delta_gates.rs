//! Decay and write strength of the delta rule.
//!
//! ```text
//! decay[t,h] = exp(-exp(a_log[h]) * softplus(a[t,h] + dt_bias[h]))
//! beta[t,h]  = sigmoid(b[t,h])
//! ```
//!
//! bf16 inputs widened to f32, everything in f32, nothing rounded to bf16. [`delta_decay`] clamps both
//! factors to the largest finite f32: no finite input gives an infinity or a NaN, which would stay in
//! the recurrent state for good.
//!
//! Source: transformers `Qwen3_5MoeGatedDeltaNet`, which rounds beta to bf16, and vLLM's
//! fused_gdn_gating, which does not. vLLM's staging is ours: the gates feed an f32 recurrence.

use crate::buffer::{BufferError, BufferTable};
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::{bf16, delta_decay, sigmoid};
use alloc::vec::Vec;

/// Decay and beta of one head in one row.
#[inline]
pub fn delta_gates(a: bf16, b: bf16, a_log: f32, dt_bias: f32) -> (f32, f32) {
    let decay = delta_decay(a_log, a.to_f32() + dt_bias);
    (decay, sigmoid(b.to_f32()))
}

operation! {
    /// One decay and one beta per row and value head.
    pub struct DeltaGates {
        /// bf16 `[T, Hv]`
        read a: bf16,
        /// bf16 `[T, Hv]`
        read b: bf16,
        /// f32 `[Hv]`
        read a_log: f32,
        /// f32 `[Hv]`
        read dt_bias: f32,
        /// f32 `[T, Hv]`
        write decay: f32,
        /// f32 `[T, Hv]`
        write beta: f32,
        ;
    }
}

impl Operation for DeltaGates {
    const NAME: &'static str = "delta_gates";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        check_delta_gates(self, buffers).map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let (mut decay, mut beta) = (memory.take(self.decay), memory.take(self.beta));
        let heads = memory
            .get(self.a_log)
            .iter()
            .zip(memory.get(self.dt_bias))
            .cycle();
        let inputs = memory.get(self.a).iter().zip(memory.get(self.b)).zip(heads);
        let outputs = decay.iter_mut().zip(&mut beta);
        for ((decay, beta), ((&a, &b), (&a_log, &dt_bias))) in outputs.zip(inputs) {
            (*decay, *beta) = delta_gates(a, b, a_log, dt_bias);
        }
        memory.put(self.decay, decay);
        memory.put(self.beta, beta);
        Ok(())
    }
}

fn check_delta_gates(op: &DeltaGates, buffers: &BufferTable) -> Result<(), BufferError> {
    let [rows, heads] = buffers.dims(op.a)?;
    if heads == 0 {
        return Err(buffers.shape_error(op.a, "[T, Hv], Hv not 0"));
    }
    buffers.expect(op.b, &[rows, heads])?;
    buffers.expect(op.a_log, &[heads])?;
    buffers.expect(op.dt_bias, &[heads])?;
    buffers.expect(op.decay, &[rows, heads])?;
    buffers.expect(op.beta, &[rows, heads])
}
