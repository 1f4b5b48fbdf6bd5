//! GPU kernels: one WGSL source each, two SPIR-V dialects.
//!
//! - [`source`]: the WGSL files, with the contract's numerics as includes
//! - [`module`]: a source with constants becomes a checked module
//! - [`strict`]: the module as SPIR-V that no compiler may contract, the only form a Vulkan device gets
//! - [`opencl`]: the module in OpenCL's dialect, for Level Zero
//! - [`lower`]: which kernels run for a launch, over which buffers, how often
//! - [`refusal`]: what a launch refuses in step data, told on the host before anything runs
//!
//! Invariants: this crate never opens a device, and no module leaves it without having passed [`strict`] (Vulkan) or
//! been written by [`opencl`] (Level Zero), so no compiler may fuse or reorder what the contract keeps apart.

pub mod lower;
pub mod module;
pub mod opencl;
pub mod refusal;
pub mod source;
pub mod strict;
