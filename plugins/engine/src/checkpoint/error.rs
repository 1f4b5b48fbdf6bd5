//! Why a checkpoint was refused: always the file, and the tensor or field in it.

use thiserror::Error;

/// Why a checkpoint was refused.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum CheckpointError {
    #[error("{path}: {source}")]
    Io {
        path: String,
        source: std::io::Error,
    },
    /// The file as a whole: its header, its index, its place in the folder.
    #[error("{file}: {problem}")]
    File { file: String, problem: String },
    /// One tensor of a file.
    #[error("{file}: tensor {tensor}: {problem}")]
    Tensor {
        file: String,
        tensor: String,
        problem: String,
    },
    /// One field of config.json or one of its neighbours.
    #[error("{file}: {field}: {problem}")]
    Config {
        file: String,
        field: String,
        problem: String,
    },
    /// A parameter of the model that the checkpoint does not hold.
    #[error("{file}: no tensor {parameter}{}", alternative.as_ref().map(|a| format!(" (nor {a})")).unwrap_or_default())]
    Missing {
        file: String,
        parameter: String,
        alternative: Option<String>,
    },
    /// Tensors that are no parameters of this model.
    #[error("{file}: {} part of no parameter of this model: {}", counted(*.count, "tensor is", "tensors are"), names.join(", "))]
    Unknown {
        file: String,
        count: usize,
        names: Vec<String>,
    },
    /// A weight of the loaded model that this loader leaves unwritten.
    #[error("weights: {buffer} was filled with {written} of its {size} bytes")]
    Unfilled {
        buffer: String,
        written: usize,
        size: usize,
    },
    /// A device that did not take the weights.
    #[error("weights: {0}")]
    Device(#[from] layerlet_core::backend::BackendError),
}

fn counted(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

impl CheckpointError {
    pub(crate) fn io(path: &std::path::Path, source: std::io::Error) -> Self {
        CheckpointError::Io {
            path: path.display().to_string(),
            source,
        }
    }

    pub(crate) fn file(file: &str, problem: impl Into<String>) -> Self {
        CheckpointError::File {
            file: file.into(),
            problem: problem.into(),
        }
    }

    pub(crate) fn tensor(file: &str, tensor: &str, problem: impl Into<String>) -> Self {
        CheckpointError::Tensor {
            file: file.into(),
            tensor: tensor.into(),
            problem: problem.into(),
        }
    }

    pub(crate) fn config(file: &str, field: &str, problem: impl Into<String>) -> Self {
        CheckpointError::Config {
            file: file.into(),
            field: field.into(),
            problem: problem.into(),
        }
    }
}
