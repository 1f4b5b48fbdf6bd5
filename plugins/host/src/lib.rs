//! Loads backends as plugins, and refuses what is not what it claims to be.
//!
//! Invariants:
//! - What a plugin returns is a [`layerlet_core::backend::Backend`] like any other; who uses it cannot tell.
//! - A plugin of another version, ABI or target is refused before anything else of it is used.
//! - `unsafe` lives in `native`, where the functions of a library are called.

mod error;
mod native;

pub use error::PluginError;
pub use native::{NativeBackend, NativePlugin};
