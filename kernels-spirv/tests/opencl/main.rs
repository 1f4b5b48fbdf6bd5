//! The OpenCL dialect: what is written, what is refused, and that every kernel goes through.

mod kernels;
mod ops;
mod refusals;
mod snapshots;
