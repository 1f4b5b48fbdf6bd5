//! Which kernel runs which launch.

use crate::pool::Pool;
use crate::*;
use layerlet_core::launch::{Launch, LaunchError};
use layerlet_core::memory::{HostBuffer, Memory};
use layerlet_core::reference::Execute;

/// Runs launches with this crate's kernels.
pub struct Executor {
    pub pool: Pool,
}

impl Execute for Executor {
    fn execute(&mut self, launch: &Launch, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        self.pool.reset();
        run(launch, &self.pool, memory)
    }

    fn adopt(&mut self, model: &mut [HostBuffer]) {
        for buffer in model {
            huge_pages::ask_for(buffer.bytes_mut());
        }
    }
}

/// Runs one launch.
pub fn run(launch: &Launch, pool: &Pool, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
    match launch {
        Launch::RmsNorm(op) => rms_norm::run(op, pool, memory),
        Launch::AddRmsNorm(op) => rms_norm::run_add(op, pool, memory),
        Launch::QuantizeRows(op) => quantize_rows::run(op, pool, memory),
        Launch::LinearBf16(op) => linear::run_bf16(op, pool, memory),
        Launch::LinearW8A8(op) => linear::run_w8a8(op, pool, memory),
        Launch::LinearW8A8Partial(op) => linear::run_partial(op, pool, memory),
        Launch::Dequantize(op) => dequantize::run(op, pool, memory),
        Launch::CausalConv1d(op) => return causal_conv1d::run(op, pool, memory),
        Launch::DeltaGates(op) => delta_gates::run(op, pool, memory),
        Launch::GatedDeltaRule(op) => return gated_delta_rule::run(op, pool, memory),
        Launch::GatedRmsNorm(op) => gated_rms_norm::run(op, pool, memory),
        Launch::Rope(op) => return rope::run(op, pool, memory),
        Launch::PagedAttention(op) => return paged_attention::run(op, pool, memory),
        Launch::RouterTopK(op) => router_top_k::run(op, pool, memory),
        Launch::ExpertPrologue(op) => return expert_prologue::run(op, pool, memory),
        Launch::GroupedLinearBf16(op) => return grouped_linear::run_bf16(op, pool, memory),
        Launch::GroupedLinearW8A8(op) => return grouped_linear::run_w8a8(op, pool, memory),
        Launch::SiluMul(op) => silu_mul::run(op, pool, memory),
        Launch::WeightedGather(op) => return weighted_gather::run(op, pool, memory),
        Launch::SharedExpert(op) => shared_expert::run(op, pool, memory),
        Launch::LmHead(op) => return lm_head::run(op, pool, memory),
        Launch::Argmax(op) => argmax::run(op, pool, memory),
        Launch::Fused(fused) => return layerlets::run(fused, pool, memory),

        // Uses the definition: these copy rows or keep books, a few kilobytes a step, or run only
        // where ranks or sampling do. Nothing would be won by saying them twice.
        Launch::Embedding(_)
        | Launch::KvAppend(_)
        | Launch::GatherRows(_)
        | Launch::ConcatColumns(_)
        | Launch::Sample(_)
        | Launch::VerifyDrafts(_)
        | Launch::RowAbsmax(_)
        | Launch::QuantizeRowsBy(_)
        | Launch::AllReduceMax(_)
        | Launch::AllReduceSum(_)
        | Launch::AllGatherColumns(_)
        | Launch::LocalExperts(_)
        | Launch::ExchangeSlotRows(_) => return launch.run(memory),
    }
    Ok(())
}
