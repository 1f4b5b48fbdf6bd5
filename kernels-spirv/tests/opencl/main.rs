//! The OpenCL dialect: what is written, what is refused, and that every kernel goes through.

#[path = "kernels.rs"]
mod kernels;
mod ops;
mod refusals;
mod snapshots;
