//! Why a command failed.

use layerlet_engine::checkpoint::CheckpointError;
use layerlet_engine::quantize::QuantizeError;
use layerlet_engine::{EngineError, OutputError};
use layerlet_host::PluginError;
use plotters::drawing::DrawingAreaErrorKind;
use std::io;
use std::path::Path;
use thiserror::Error;

/// Why a command failed.
#[derive(Debug, Error)]
pub enum CommandError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Quantize(#[from] QuantizeError),
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error(transparent)]
    Plugin(#[from] PluginError),
    /// A flag or argument whose value has no meaning here.
    #[error("{flag}: {problem}")]
    Argument { flag: &'static str, problem: String },
    #[error("{path}: {problem}")]
    File { path: String, problem: String },
    #[error("a chart: {0}")]
    Chart(#[from] DrawingAreaErrorKind<io::Error>),
    /// The report before it says which.
    #[error("{failed} of {of} canaries fail")]
    Canaries { failed: usize, of: usize },
    /// The alarms before it say which.
    #[error("{mismatches} launches wrote other bytes than the reference")]
    Shadow { mismatches: u64 },
    #[error("standard output: {0}")]
    Stdout(#[from] io::Error),
}

impl CommandError {
    pub fn argument(flag: &'static str, problem: impl ToString) -> CommandError {
        CommandError::Argument {
            flag,
            problem: problem.to_string(),
        }
    }

    pub fn file(path: &Path, problem: impl ToString) -> CommandError {
        CommandError::File {
            path: path.display().to_string(),
            problem: problem.to_string(),
        }
    }

    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, CommandError::Stdout(e) if e.kind() == io::ErrorKind::BrokenPipe)
    }
}
