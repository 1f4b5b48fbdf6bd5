//! Why a request or a model was refused.

use crate::checkpoint::CheckpointError;
use layerlet_core::backend::BackendError;
use layerlet_core::buffer::BufferError;
use layerlet_core::plan::{PlanError, StepError};
use thiserror::Error;

/// Why a request or a model was refused.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum EngineError {
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Step(#[from] StepError),
    #[error(transparent)]
    Buffer(#[from] BufferError),
    #[error("{what} is {found}, expected {expected}")]
    Request {
        what: &'static str,
        found: String,
        expected: String,
    },
    #[error("{path}: {problem}")]
    File { path: String, problem: String },
}

impl EngineError {
    pub(crate) fn request(
        what: &'static str,
        found: impl ToString,
        expected: impl Into<String>,
    ) -> Self {
        EngineError::Request {
            what,
            found: found.to_string(),
            expected: expected.into(),
        }
    }
}
