//! The layerlets: several operations behind one kernel, with the bytes of their stages.
//!
//! Each file recognises its stages by who reads what, takes the outputs, and never stores what only
//! the stages see, unless the launch asks for it (`keep_intermediates`). Stages in another
//! arrangement than the kernel knows, or step data out of range, run one by one instead: what a
//! layerlet computes is, by definition, its stages.

mod attention_layer;
mod experts;
mod gdn_layer;
mod lm_head_argmax;
mod moe_layer;
mod quantize_linear;
mod routed_moe;
mod stages;

use crate::execute;
use crate::pool::Pool;
use layerlet_core::launch::{Fused, LaunchError, Layerlet};
use layerlet_core::memory::Memory;

/// Runs a fused launch.
pub fn run(fused: &Fused, pool: &Pool, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
    let kernel = match fused.layerlet {
        Layerlet::QuantizeLinear => quantize_linear::run,
        Layerlet::RoutedMoe => routed_moe::run,
        Layerlet::MoeLayer => moe_layer::run,
        Layerlet::GdnLayer => gdn_layer::run,
        Layerlet::AttentionLayer => attention_layer::run,
        Layerlet::LmHeadArgmax => lm_head_argmax::run,
    };
    if kernel(fused, pool, memory).is_some() {
        return Ok(());
    }
    let mut stages = fused.stages.iter();
    stages.try_for_each(|stage| execute::run(stage, pool, memory))
}
