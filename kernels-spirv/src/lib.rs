//! GPU kernels: one WGSL source each, two SPIR-V dialects.
//!
//! Invariants: this crate never opens a device, and no module leaves it without having passed [`strict`] (Vulkan) or
//! been written by [`opencl`] (Level Zero), so no compiler may fuse or reorder what the contract keeps apart.

pub mod opencl;
pub mod strict;
