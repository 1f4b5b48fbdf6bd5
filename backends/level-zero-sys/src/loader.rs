//! Opens the Level Zero loader at run time.

use crate::functions::Api;
use libloading::Library;
use std::path::PathBuf;
use thiserror::Error;

/// Names another loader than the system's.
pub const LIBRARY_VARIABLE: &str = "LAYERLET_ZE_LOADER";

const SYSTEM: &str = "libze_loader.so.1";

/// Why there is no Level Zero here.
#[derive(Debug, Error)]
pub enum OpenError {
    /// No such library, or one that does not load.
    #[error(
        "Level Zero loader {path}: {source}; install it (Debian: libze1) or name one with {LIBRARY_VARIABLE}",
        path = path.display()
    )]
    Library {
        /// What was opened.
        path: PathBuf,
        /// What the system said.
        source: libloading::Error,
    },
    /// A loader without a function that is needed.
    #[error("Level Zero loader {path} has no {function}: {source}", path = path.display())]
    Function {
        /// What was opened.
        path: PathBuf,
        /// The function that it lacks.
        function: &'static str,
        /// What the system said.
        source: libloading::Error,
    },
}

impl Api {
    /// Opens the loader that [`LIBRARY_VARIABLE`] names, else the system's.
    pub fn open() -> Result<Api, OpenError> {
        let path = std::env::var_os(LIBRARY_VARIABLE).map_or_else(|| SYSTEM.into(), PathBuf::from);
        Api::open_at(path)
    }

    /// Opens this loader.
    pub fn open_at(path: PathBuf) -> Result<Api, OpenError> {
        // SAFETY: loading the Level Zero loader runs its constructors, which touch nothing of ours.
        match unsafe { Library::new(&path) } {
            Ok(library) => Api::from_library(library, path),
            Err(source) => Err(OpenError::Library { path, source }),
        }
    }
}
