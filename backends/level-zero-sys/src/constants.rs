//! Enumerations, flags and limits. C's enums are `unsigned int` here: a driver may return values that no header knows.

use crate::Constant;

macro_rules! constants {
    ($($(#[$doc:meta])* $kind:ident { $($name:ident = $value:expr),* $(,)? })*) => {
        $($(#[$doc])* pub type $kind = u32;
        $(#[doc = concat!("`", stringify!($name), "`")] pub const $name: $kind = $value;)*)*
        /// Every constant, for the check against the headers.
        pub const CONSTANTS: &[Constant] = &[$($(Constant { name: stringify!($name), value: $name as u64 }),*),*];
    };
}

constants! {
    /// What a call returned.
    ze_result_t {
        ZE_RESULT_SUCCESS = 0,
        ZE_RESULT_NOT_READY = 1,
        ZE_RESULT_ERROR_DEVICE_LOST = 0x7000_0001,
        ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY = 0x7000_0002,
        ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY = 0x7000_0003,
        ZE_RESULT_ERROR_MODULE_BUILD_FAILURE = 0x7000_0004,
        ZE_RESULT_ERROR_MODULE_LINK_FAILURE = 0x7000_0005,
        ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET = 0x7000_0006,
        ZE_RESULT_ERROR_DEVICE_IN_LOW_POWER_STATE = 0x7000_0007,
        ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS = 0x7001_0000,
        ZE_RESULT_ERROR_NOT_AVAILABLE = 0x7001_0001,
        ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE = 0x7002_0000,
        ZE_RESULT_ERROR_UNINITIALIZED = 0x7800_0001,
        ZE_RESULT_ERROR_UNSUPPORTED_VERSION = 0x7800_0002,
        ZE_RESULT_ERROR_UNSUPPORTED_FEATURE = 0x7800_0003,
        ZE_RESULT_ERROR_INVALID_ARGUMENT = 0x7800_0004,
        ZE_RESULT_ERROR_INVALID_NULL_HANDLE = 0x7800_0005,
        ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE = 0x7800_0006,
        ZE_RESULT_ERROR_INVALID_NULL_POINTER = 0x7800_0007,
        ZE_RESULT_ERROR_INVALID_SIZE = 0x7800_0008,
        ZE_RESULT_ERROR_UNSUPPORTED_SIZE = 0x7800_0009,
        ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT = 0x7800_000a,
        ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT = 0x7800_000b,
        ZE_RESULT_ERROR_INVALID_ENUMERATION = 0x7800_000c,
        ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION = 0x7800_000d,
        ZE_RESULT_ERROR_INVALID_NATIVE_BINARY = 0x7800_000f,
        ZE_RESULT_ERROR_INVALID_KERNEL_NAME = 0x7800_0011,
        ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION = 0x7800_0013,
        ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX = 0x7800_0015,
        ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE = 0x7800_0016,
        ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE = 0x7800_0019,
        ZE_RESULT_ERROR_OVERLAPPING_REGIONS = 0x7800_001a,
        ZE_RESULT_ERROR_UNKNOWN = 0x7fff_fffe,
    }
    /// Which struct a pointer points to.
    ze_structure_type_t {
        ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES = 0x1,
        ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES = 0x3,
        ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES = 0x4,
        ZE_STRUCTURE_TYPE_DEVICE_MODULE_PROPERTIES = 0x5,
        ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES = 0x6,
        ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES = 0x7,
        ZE_STRUCTURE_TYPE_DEVICE_MEMORY_ACCESS_PROPERTIES = 0x8,
        ZE_STRUCTURE_TYPE_CONTEXT_DESC = 0xd,
        ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC = 0xe,
        ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC = 0xf,
        ZE_STRUCTURE_TYPE_EVENT_POOL_DESC = 0x10,
        ZE_STRUCTURE_TYPE_EVENT_DESC = 0x11,
        ZE_STRUCTURE_TYPE_FENCE_DESC = 0x12,
        ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC = 0x15,
        ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC = 0x16,
        ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES = 0x17,
        ZE_STRUCTURE_TYPE_MODULE_DESC = 0x1b,
        ZE_STRUCTURE_TYPE_MODULE_PROPERTIES = 0x1c,
        ZE_STRUCTURE_TYPE_KERNEL_DESC = 0x1d,
        ZE_STRUCTURE_TYPE_KERNEL_PROPERTIES = 0x1e,
        ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES = 0x1_0008,
        ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC = 0x2_0001,
    }
    /// Which sysman struct a pointer points to.
    zes_structure_type_t { ZES_STRUCTURE_TYPE_MEM_STATE = 0x1e }
    /// How well a memory module is.
    zes_mem_health_t { ZES_MEM_HEALTH_UNKNOWN = 0, ZES_MEM_HEALTH_OK = 1 }
    /// Major version in the high half, minor in the low.
    ze_api_version_t { ZE_API_VERSION_1_0 = 0x1_0000, ZE_API_VERSION_1_3 = 0x1_0003 }
    /// What to initialise.
    ze_init_flags_t { ZE_INIT_FLAG_GPU_ONLY = 1 }
    /// Kind of device.
    ze_device_type_t { ZE_DEVICE_TYPE_GPU = 1, ZE_DEVICE_TYPE_CPU = 2 }
    /// What a device is.
    ze_device_property_flags_t {
        ZE_DEVICE_PROPERTY_FLAG_INTEGRATED = 1,
        ZE_DEVICE_PROPERTY_FLAG_SUBDEVICE = 2,
        ZE_DEVICE_PROPERTY_FLAG_ECC = 4,
    }
    /// What kernels may use.
    ze_device_module_flags_t {
        ZE_DEVICE_MODULE_FLAG_FP16 = 1,
        ZE_DEVICE_MODULE_FLAG_FP64 = 2,
        ZE_DEVICE_MODULE_FLAG_INT64_ATOMICS = 4,
        ZE_DEVICE_MODULE_FLAG_DP4A = 8,
    }
    /// What floats keep.
    ze_device_fp_flags_t {
        ZE_DEVICE_FP_FLAG_DENORM = 1,
        ZE_DEVICE_FP_FLAG_INF_NAN = 2,
        ZE_DEVICE_FP_FLAG_ROUND_TO_NEAREST = 4,
        ZE_DEVICE_FP_FLAG_FMA = 0x20,
        ZE_DEVICE_FP_FLAG_ROUNDED_DIVIDE_SQRT = 0x40,
    }
    /// What a group of queues does.
    ze_command_queue_group_property_flags_t {
        ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE = 1,
        ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY = 2,
        ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COOPERATIVE_KERNELS = 4,
    }
    /// How memory may be accessed.
    ze_memory_access_cap_flags_t {
        ZE_MEMORY_ACCESS_CAP_FLAG_RW = 1,
        ZE_MEMORY_ACCESS_CAP_FLAG_ATOMIC = 2,
        ZE_MEMORY_ACCESS_CAP_FLAG_CONCURRENT = 4,
        ZE_MEMORY_ACCESS_CAP_FLAG_CONCURRENT_ATOMIC = 8,
    }
    /// Where memory lies.
    ze_memory_type_t {
        ZE_MEMORY_TYPE_UNKNOWN = 0,
        ZE_MEMORY_TYPE_HOST = 1,
        ZE_MEMORY_TYPE_DEVICE = 2,
        ZE_MEMORY_TYPE_SHARED = 3,
    }
    /// Larger allocations than the device's limit.
    ze_relaxed_allocation_limits_exp_flags_t { ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE = 1 }
    /// What a module comes as.
    ze_module_format_t { ZE_MODULE_FORMAT_IL_SPIRV = 0, ZE_MODULE_FORMAT_NATIVE = 1 }
    /// When calls return.
    ze_command_queue_mode_t {
        ZE_COMMAND_QUEUE_MODE_DEFAULT = 0,
        ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS = 1,
        ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS = 2,
    }
    /// Which queue goes first.
    ze_command_queue_priority_t { ZE_COMMAND_QUEUE_PRIORITY_NORMAL = 0 }
    /// Who sees the events of a pool.
    ze_event_pool_flags_t {
        ZE_EVENT_POOL_FLAG_HOST_VISIBLE = 1,
        ZE_EVENT_POOL_FLAG_IPC = 2,
        ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP = 4,
    }
    /// Whose memory an event makes coherent.
    ze_event_scope_flags_t { ZE_EVENT_SCOPE_FLAG_DEVICE = 2, ZE_EVENT_SCOPE_FLAG_HOST = 4 }
}

macro_rules! limits {
    ($($name:ident = $value:expr;)*) => {
        $(#[doc = concat!("`", stringify!($name), "`")] pub const $name: usize = $value;)*
        /// Every array length, for the check against the headers.
        pub const LIMITS: &[Constant] = &[$(Constant { name: stringify!($name), value: $name as u64 }),*];
    };
}

limits! {
    ZE_MAX_DEVICE_NAME = 256;
    ZE_MAX_EXTENSION_NAME = 256;
    ZE_MAX_DEVICE_UUID_SIZE = 16;
    ZE_SUBGROUPSIZE_COUNT = 8;
}

/// Flags of which no value is used here.
pub type ze_flags_t = u32;
/// What a kernel reaches through pointers in memory.
pub type ze_kernel_indirect_access_flags_t = u32;
/// How a kernel's cache is split.
pub type ze_cache_config_flags_t = u32;

/// The name of a result, as the specification spells it.
pub fn result_name(result: ze_result_t) -> String {
    let known = CONSTANTS
        .iter()
        .find(|c| c.name.starts_with("ZE_RESULT_") && c.value == u64::from(result));
    known.map_or_else(|| format!("result {result:#x}"), |c| c.name.to_string())
}
