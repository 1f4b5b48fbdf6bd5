//! Why a plugin was refused.

use layerlet_core::encoding::EncodingError;
use std::path::Path;
use thiserror::Error;

/// Why a plugin was refused.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum PluginError {
    #[error("{path}: {problem}")]
    File { path: String, problem: String },
    #[error("{path} {what} {found}, this host has {expected}")]
    Other {
        path: String,
        what: &'static str,
        found: String,
        expected: String,
    },
    #[error("{path}: what it says of itself: {source}")]
    Capabilities { path: String, source: EncodingError },
}

impl PluginError {
    pub(crate) fn file(path: &Path, problem: impl ToString) -> PluginError {
        PluginError::File {
            path: path.display().to_string(),
            problem: problem.to_string(),
        }
    }
}
