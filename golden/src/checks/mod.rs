//! The checks: what is run, against what, and what counts as a failure.

pub mod fixtures;
