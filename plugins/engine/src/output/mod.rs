//! A checkpoint that is being written, in the Quark W8A8 INT8 layout: its folder, its files, its names.
//!
//! Bytes are asked for tensor by tensor, while they are written: memory holds one tensor.
//!
//! Invariants: nothing that exists is overwritten; the folder opens only when it is complete.

mod layout;
mod shards;
mod staging;

pub(crate) use layout::{file_name, is_quantized, quantization_config, scale_name};
pub(crate) use shards::write_shards;
pub(crate) use staging::Staging;

use safetensors::Dtype;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a checkpoint could not be written.
#[derive(Debug, Error)]
#[error("{}: {problem}", path.display())]
#[allow(missing_docs)]
pub struct OutputError {
    pub path: PathBuf,
    pub problem: String,
}

impl OutputError {
    pub(crate) fn new(path: &Path, problem: impl ToString) -> OutputError {
        OutputError {
            path: path.into(),
            problem: problem.to_string(),
        }
    }
}

/// Where writing stands: bytes of output computed so far, of how many.
pub type Progress<'a> = dyn Fn(u64, u64) + 'a;

/// A tensor of the output.
pub(crate) struct OutTensor<C> {
    /// Name in the file.
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    /// What its bytes come from.
    pub content: C,
}

/// What the bytes of a tensor come from.
pub(crate) trait Content {
    /// The bytes of a tensor of this shape, computed now.
    fn bytes(&self, shape: &[usize]) -> Cow<'_, [u8]>;
}

impl<C> OutTensor<C> {
    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.bitsize() / 8
    }
}

/// Writes `config.json`.
pub(crate) fn write_config(to: &Path, config: &Map<String, Value>) -> Result<(), OutputError> {
    let path = to.join("config.json");
    let text = serde_json::to_string_pretty(config).expect("a JSON value is JSON");
    std::fs::write(&path, text).map_err(|e| OutputError::new(&path, e))
}
