//! Turns a float checkpoint into the Quark W8A8 INT8 layout.
//!
//! Per output row, symmetric: `s = max(absmax, 1e-10) / 127`, `q = clamp(round_half_even(w / s), -127,
//! 127)`, all in f32. Quantised are the linears of the decoder layers except the router and the shared
//! expert's gate; embedding, head, prediction head, norms and the vision tower are copied byte for byte.
//! Experts get their per-expert names, text tensors the prefix `model.language_model.`.
//!
//! Tensors are computed while they are written: memory holds the scales and one tensor.
//!
//! Invariant: the input is read twice (scales, then codes), so that a value that has no code is found
//! before anything is written.

mod config;
mod rows;
mod tensors;

use crate::checkpoint::{Checkpoint, CheckpointError, Stored};
use crate::output::{OutputError, Progress, Staging, write_config, write_shards};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why nothing was written.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum QuantizeError {
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error("{}: {module} is int8 already", folder.display())]
    AlreadyInt8 { folder: PathBuf, module: String },
    /// `row` indexes the tensor as it is in the file, without its last dimension.
    #[error("tensor {tensor}, row {row:?}: {value} cannot be quantised")]
    NotFinite {
        tensor: String,
        row: Vec<usize>,
        value: f32,
    },
    #[error(transparent)]
    Output(#[from] OutputError),
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantized {
    /// Files with tensors.
    pub shards: Vec<String>,
    /// Their bytes of data.
    pub bytes: u64,
    /// Linears that are int8 now.
    pub linears: usize,
    /// Other files that were copied.
    pub copied: Vec<String>,
}

/// Writes a quantised copy of the checkpoint in `from` to the folder `to`, which must be empty or new.
pub fn quantize(
    from: &Path,
    to: &Path,
    shard_bytes: u64,
    progress: &Progress,
) -> Result<Quantized, QuantizeError> {
    let checkpoint = Checkpoint::open(from)?;
    refuse_int8(from, &checkpoint)?;
    let staging = Staging::new(to)?;
    let tensors = tensors::plan(&checkpoint)?;
    let linears = tensors.iter().filter(|t| t.content.is_codes()).count();
    let (shards, bytes) = write_shards(staging.path(), &tensors, shard_bytes, progress)?;
    write_config(staging.path(), &config::config(&checkpoint))?;
    let copied = copy_companions(from, staging.path())?;
    staging.finish()?;
    Ok(Quantized {
        shards,
        bytes,
        linears,
        copied,
    })
}

fn refuse_int8(from: &Path, checkpoint: &Checkpoint) -> Result<(), QuantizeError> {
    let int8 = |w: &&crate::checkpoint::Weight| w.stored == Stored::Int8;
    match checkpoint.weights().iter().find(int8) {
        Some(weight) => Err(QuantizeError::AlreadyInt8 {
            folder: from.into(),
            module: weight.parameter.module.clone(),
        }),
        None => Ok(()),
    }
}

/// Tokenizer, chat template and the like: every small file that is neither weights nor config.
fn copy_companions(from: &Path, to: &Path) -> Result<Vec<String>, OutputError> {
    const KINDS: [&str; 5] = ["json", "jinja", "txt", "model", "md"];
    let mut copied = Vec::new();
    for entry in std::fs::read_dir(from).map_err(|e| OutputError::new(from, e))? {
        let entry = entry.map_err(|e| OutputError::new(from, e))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = Path::new(&name).extension().and_then(|e| e.to_str());
        let written = name == "config.json" || name.ends_with(".safetensors.index.json");
        if written || !kind.is_some_and(|k| KINDS.contains(&k)) || !entry.path().is_file() {
            continue;
        }
        let target = to.join(&name);
        std::fs::copy(entry.path(), &target).map_err(|e| OutputError::new(&target, e))?;
        copied.push(name);
    }
    copied.sort();
    Ok(copied)
}
