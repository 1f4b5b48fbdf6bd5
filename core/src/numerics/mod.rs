//! Scalar semantics: what a bf16, a sum, a dot product, an exponential *is* here.
//!
//! `core/NUMERICS.md` is the contract in words; this module is the same contract as code.

mod lanes;
mod rounding;

pub use lanes::{LANES, lane_dot, lane_dot_bf16, lane_sum, tree_sum};
pub use rounding::{bf16, round_bf16};
