//! The OpenCL dialect: what is written and what is refused.

mod kernels;
mod ops;
mod refusals;
mod snapshots;
