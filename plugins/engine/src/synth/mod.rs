//! Synthetic checkpoints: models of real shapes with random weights, in the layout that quantising
//! writes, so that kernels can be tested and measured where no real weights are.
//!
//! Every linear has unit gain (rows of standard deviation `1/sqrt(K)`), norms are near the weight that
//! changes nothing, decays are those of trained models: hidden states and logits stay of order one at
//! any length, and routes reach all experts.
//!
//! Invariants: a tensor depends on seed, name and shape alone; its bytes are the same on every machine.

mod config;
mod preset;
mod stream;
mod tensors;
mod values;

pub use preset::Preset;

use crate::output::{OutputError, Progress, Staging, write_config, write_shards};
use safetensors::Dtype;
use std::path::Path;

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synthesized {
    /// Files with tensors.
    pub shards: Vec<String>,
    /// Their bytes of data.
    pub bytes: u64,
    /// Linears that are int8.
    pub linears: usize,
}

/// Writes the checkpoint of a preset and a seed to the folder `to`, which must be empty or new.
pub fn synthesize(
    preset: Preset,
    seed: u64,
    to: &Path,
    shard_bytes: u64,
    progress: &Progress,
) -> Result<Synthesized, OutputError> {
    let model = preset.config();
    let staging = Staging::new(to)?;
    let tensors = tensors::plan(&model, seed);
    let linears = tensors.iter().filter(|t| t.dtype == Dtype::I8).count();
    let (shards, bytes) = write_shards(staging.path(), &tensors, shard_bytes, progress)?;
    write_config(staging.path(), &config::config(&model))?;
    staging.finish()?;
    Ok(Synthesized {
        shards,
        bytes,
        linears,
    })
}
