//! The proof: every operation and every fused kernel of every backend gives the bytes of the
//! reference, and the checks that say so catch planted faults.
//!
//! Data goes one way: fixture → [`case::Case`] (plan and inputs) → [`run`] on a backend → [`compare`]
//! with the reference → [`report`]. `cargo xtask golden` is the command line of this crate.

pub mod attest;
pub mod candidate;
pub mod case;
pub mod checks;
pub mod compare;
pub mod demo_model;
pub mod external;
pub mod fixture;
pub mod generate;
pub mod parallel;
pub mod prove;
pub mod report;
pub mod run;
pub mod small_model;
pub mod snapshot;
pub mod teeth;

use std::path::PathBuf;

/// This crate's folder: fixtures, snapshots, regressions.
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
