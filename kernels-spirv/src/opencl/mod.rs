//! The writer of OpenCL-dialect SPIR-V, the kind that Level Zero and OpenCL load.
//!
//! It takes one compute entry point of a validated naga [`Module`] whose overrides are already specialised, and gives
//! [`Kernel`]: the words, and the [`Interface`] by which a backend sets arguments.
//!
//! | WGSL | OpenCL dialect |
//! |---|---|
//! | `var<storage>` array | a global pointer, then its length in elements (`u32`), which is what `arrayLength` reads |
//! | `var<storage>` of fixed size | a global pointer |
//! | `var<uniform>`, `var<immediate>` | one 4-byte argument for each scalar, at its offset in the uniform's bytes |
//! | `var<workgroup>` | a module variable; unlike in WGSL its first content is undefined |
//! | `bool` in memory | a `u32` |
//! | shuffles, reductions | `SPV_INTEL_subgroups`, `OpGroup*` of integers |
//! | `dot4I8Packed`, `dot4U8Packed` | `OpSDot`, `OpUDot` |
//!
//! The module is SPIR-V 1.2 with `ContractionOff`, and never contains `fma` or `mad`. What has no form here, or none
//! that the numerics contract can rely on, is an [`Error`] naming the construct.
//!
//! Accesses outside a buffer are undefined, as in the Vulkan modules: a kernel compares with `arrayLength` or with the
//! shapes that it is specialised for. `/` and `sqrt` round correctly only where a program is built with
//! [`BUILD_OPTIONS`].

mod atomic;
mod binary;
mod convert;
mod error;
mod expression;
mod function;
mod integer;
mod interface;
mod layout;
mod math;
mod memory;
mod statement;
mod subgroup;
mod types;
mod uniform;
mod writer;

pub use error::Error;
pub use interface::{Argument, Binding, Capability, Interface};

use naga::{Module, valid::ModuleInfo};

/// What a driver's compiler has to be given: without it `/` and `sqrt` may be off by units in the last place.
pub const BUILD_OPTIONS: &str = "-cl-fp32-correctly-rounded-divide-sqrt";

/// Choices that are not in the WGSL source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The number of invocations that a subgroup must have, where the kernel depends on it.
    pub subgroup_size: Option<u32>,
}

/// A compiled kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The SPIR-V module.
    pub words: Vec<u32>,
    /// How it is called.
    pub interface: Interface,
}

/// Writes the compute entry point `entry` of `module`.
pub fn write(
    module: &Module,
    info: &ModuleInfo,
    entry: &str,
    options: &Options,
) -> Result<Kernel, Error> {
    writer::Writer::new(module, info).kernel(entry, options)
}
