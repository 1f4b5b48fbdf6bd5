//! What crosses crates and what meets peers. The tests lie in `tests/tests`; this library holds what
//! several of them share.

pub mod oracle;

use std::path::PathBuf;

/// The workspace's root folder.
pub fn root() -> PathBuf {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    manifest
        .parent()
        .expect("tests lies in the workspace")
        .to_path_buf()
}
