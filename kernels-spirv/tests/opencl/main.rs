//! The OpenCL dialect: what is written, what is refused, and what Intel's CPU runtime makes of it.

#[path = "kernels.rs"]
mod kernels;
mod refusals;
mod run;
mod runtime;
mod snapshots;
