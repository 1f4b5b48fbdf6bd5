//! How a compiled kernel is called: all that a backend has to know beside the words.

use rspirv::spirv;

/// `@group` and `@binding` of the WGSL variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Binding {
    /// `@group`
    pub group: u32,
    /// `@binding`
    pub binding: u32,
}

/// One kernel argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Argument {
    /// A pointer to device memory, aligned to 16 bytes.
    Buffer {
        /// The storage variable.
        binding: Binding,
        /// False for `var<storage, read>`.
        writable: bool,
    },
    /// The number of whole elements in the buffer before it, as a `u32`.
    Length {
        /// The storage variable.
        binding: Binding,
        /// Bytes of an element.
        stride: u32,
    },
    /// Four bytes of a uniform (or of the immediates, where `binding` is none), beginning at `offset`.
    Value {
        /// The uniform variable.
        binding: Option<Binding>,
        /// Bytes from the uniform's start.
        offset: u32,
    },
}

/// What a device must have beyond an OpenCL 2 kernel with 64-bit integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Capability {
    /// Four 8-bit products and their sum in one instruction (`cl_khr_integer_dot_product`).
    IntegerDot,
    /// Atomics on 64-bit integers.
    Int64Atomics,
    /// Reductions, scans and votes of a subgroup (`cl_khr_subgroups`).
    SubgroupReduce,
    /// Exchange between the invocations of a subgroup (`cl_intel_subgroups`).
    SubgroupShuffle,
    /// A fixed subgroup size (`cl_intel_required_subgroup_size`).
    SubgroupSize,
}

impl Capability {
    pub(super) fn declarations(self) -> &'static [spirv::Capability] {
        match self {
            Capability::IntegerDot => &[
                spirv::Capability::DotProduct,
                spirv::Capability::DotProductInput4x8BitPacked,
            ],
            Capability::Int64Atomics => &[spirv::Capability::Int64Atomics],
            Capability::SubgroupReduce => &[spirv::Capability::Groups],
            Capability::SubgroupShuffle => &[spirv::Capability::SubgroupShuffleINTEL],
            Capability::SubgroupSize => &[spirv::Capability::SubgroupDispatch],
        }
    }

    pub(super) fn extension(self) -> Option<&'static str> {
        match self {
            Capability::IntegerDot => Some("SPV_KHR_integer_dot_product"),
            Capability::SubgroupShuffle => Some("SPV_INTEL_subgroups"),
            Capability::Int64Atomics | Capability::SubgroupReduce | Capability::SubgroupSize => {
                None
            }
        }
    }
}

/// How a kernel is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's name in the module.
    pub entry_point: String,
    /// The arguments in their order.
    pub arguments: Vec<Argument>,
    /// Invocations of a workgroup.
    pub workgroup_size: [u32; 3],
    /// Invocations of a subgroup, where the kernel depends on it.
    pub subgroup_size: Option<u32>,
    /// Bytes of workgroup memory.
    pub workgroup_bytes: u32,
    /// What a device must have.
    pub capabilities: Vec<Capability>,
}
