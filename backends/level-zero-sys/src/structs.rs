//! The structs, field by field in C's order. `type` is a word of Rust's, so that field is `type_`.

use crate::Layout;
use crate::constants::*;
use std::ffi::{c_char, c_void};

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        $($(#[$doc])* pub type $name = *mut c_void;)*
    };
}

handles! {
    /// A driver.
    ze_driver_handle_t,
    /// A device.
    ze_device_handle_t,
    /// A context.
    ze_context_handle_t,
    /// A command queue.
    ze_command_queue_handle_t,
    /// A command list.
    ze_command_list_handle_t,
    /// A fence.
    ze_fence_handle_t,
    /// A pool of events.
    ze_event_pool_handle_t,
    /// An event.
    ze_event_handle_t,
    /// A module.
    ze_module_handle_t,
    /// What the compiler said.
    ze_module_build_log_handle_t,
    /// A kernel.
    ze_kernel_handle_t,
    /// A device, as sysman sees it.
    zes_device_handle_t,
    /// A memory module, as sysman sees it.
    zes_mem_handle_t,
}

/// C's truth value.
pub type ze_bool_t = u8;

macro_rules! structs {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* })*) => {
        $($(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        #[allow(missing_docs)]
        pub struct $name { $(pub $field: $type,)* }

        impl Default for $name {
            fn default() -> Self {
                // SAFETY: integers, arrays of them and raw pointers, for all of which zero is a value.
                unsafe { std::mem::zeroed() }
            }
        })*

        /// Every struct, for the check against the headers.
        pub const LAYOUTS: &[Layout] = &[$(Layout {
            name: stringify!($name),
            size: size_of::<$name>(),
            align: align_of::<$name>(),
            fields: &[$((stringify!($field), std::mem::offset_of!($name, $field), size_of::<$type>())),*],
        }),*];
    };
}

structs! {
    /// Identity of a driver.
    ze_driver_uuid_t {
        id: [u8; 16],
    }
    /// Identity of a device.
    ze_device_uuid_t {
        id: [u8; ZE_MAX_DEVICE_UUID_SIZE],
    }
    /// Identity of a native format.
    ze_native_kernel_uuid_t {
        id: [u8; 16],
    }
    /// Identity of a kernel.
    ze_kernel_uuid_t {
        kid: [u8; 16],
        mid: [u8; 16],
    }
    /// Of a driver.
    ze_driver_properties_t {
        stype: ze_structure_type_t,
        pNext: *mut c_void,
        uuid: ze_driver_uuid_t,
        driverVersion: u32,
    }
    /// What processes may share.
    ze_driver_ipc_properties_t {
        stype: ze_structure_type_t,
        pNext: *mut c_void,
        flags: ze_flags_t,
    }
    /// An extension.
    ze_driver_extension_properties_t {
        name: [c_char; ZE_MAX_EXTENSION_NAME],
        version: u32,
    }
    /// Of a device.
    ze_device_properties_t {
        stype: ze_structure_type_t,
        pNext: *mut c_void,
        type_: ze_device_type_t,
        vendorId: u32,
        deviceId: u32,
        flags: ze_device_property_flags_t,
        subdeviceId: u32,
        coreClockRate: u32,
        maxMemAllocSize: u64,
        maxHardwareContexts: u32,
        maxCommandQueuePriority: u32,
        numThreadsPerEU: u32,
        physicalEUSimdWidth: u32,
        numEUsPerSubslice: u32,
        numSubslicesPerSlice: u32,
        numSlices: u32,
        timerResolution: u64,
        timestampValidBits: u32,
        kernelTimestampValidBits: u32,
        uuid: ze_device_uuid_t,
        name: [c_char; ZE_MAX_DEVICE_NAME],
    }
    /// Group sizes and local memory.
    ze_device_compute_properties_t {
        stype: ze_structure_type_t,
        pNext: *mut c_void,
        maxTotalGroupSize: u32,
        maxGroupSizeX: u32,
        maxGroupSizeY: u32,
        maxGroupSizeZ: u32,
        maxGroupCountX: u32,
        maxGroupCountY: u32,
        maxGroupCountZ: u32,
        maxSharedLocalMemory: u32,
        numSubGroupSizes: u32,
        subGroupSizes: [u32; ZE_SUBGROUPSIZE_COUNT],
    }
    /// What modules may use.
    ze_device_module_properties_t {
        stype: ze_structure_type_t,
        pNext: *mut c_void,
        spirvVersionSupported: u32,
        flags: ze_device_module_flags_t,
        fp16flags: ze_device_fp_flags_t,
        fp32flags: ze_device_fp_flags_t,
        fp64flags: ze_device_fp_flags_t,
        maxArgumentsSize: u32,
        printfBufferSize: u32,
        nativeKernelSupported: ze_native_kernel_uuid_t,
    }
    /// Of a group of queues.
    ze_command_queue_group_properties_t {
        stype: ze_structure_type_t,
        pNext: *mut c_void,
        flags: ze_command_queue_group_property_flags_t,
        maxMemoryFillPatternSize: usize,
        numQueues: u32,
    }
    /// Of a device's memory.
    ze_device_memory_properties_t {
        stype: ze_structure_type_t,
        pNext: *mut c_void,
        flags: ze_flags_t,
        maxClockRate: u32,
        maxBusWidth: u32,
        totalSize: u64,
        name: [c_char; ZE_MAX_DEVICE_NAME],
    }
    /// Who may access what.
    ze_device_memory_access_properties_t {
        stype: ze_structure_type_t,
        pNext: *mut c_void,
        hostAllocCapabilities: ze_memory_access_cap_flags_t,
        deviceAllocCapabilities: ze_memory_access_cap_flags_t,
        sharedSingleDeviceAllocCapabilities: ze_memory_access_cap_flags_t,
        sharedCrossDeviceAllocCapabilities: ze_memory_access_cap_flags_t,
        sharedSystemAllocCapabilities: ze_memory_access_cap_flags_t,
    }
    /// Of a cache.
    ze_device_cache_properties_t {
        stype: ze_structure_type_t,
        pNext: *mut c_void,
        flags: ze_flags_t,
        cacheSize: usize,
    }
    /// Where a device sits.
    ze_pci_address_ext_t {
        domain: u32,
        bus: u32,
        device: u32,
        function: u32,
    }
    /// How fast its link is.
    ze_pci_speed_ext_t {
        genVersion: i32,
        width: i32,
        maxBandwidth: i64,
    }
    /// Of the PCI link.
    ze_pci_ext_properties_t {
        stype: ze_structure_type_t,
        pNext: *mut c_void,
        address: ze_pci_address_ext_t,
        maxSpeed: ze_pci_speed_ext_t,
    }
    /// A context to create.
    ze_context_desc_t {
        stype: ze_structure_type_t,
        pNext: *const c_void,
        flags: ze_flags_t,
    }
    /// Device memory to allocate.
    ze_device_mem_alloc_desc_t {
        stype: ze_structure_type_t,
        pNext: *const c_void,
        flags: ze_flags_t,
        ordinal: u32,
    }
    /// Host memory to allocate.
    ze_host_mem_alloc_desc_t {
        stype: ze_structure_type_t,
        pNext: *const c_void,
        flags: ze_flags_t,
    }
    /// Chained to an allocation over the limit.
    ze_relaxed_allocation_limits_exp_desc_t {
        stype: ze_structure_type_t,
        pNext: *const c_void,
        flags: ze_relaxed_allocation_limits_exp_flags_t,
    }
    /// Of an allocation.
    ze_memory_allocation_properties_t {
        stype: ze_structure_type_t,
        pNext: *mut c_void,
        type_: ze_memory_type_t,
        id: u64,
        pageSize: u64,
    }
    /// Specialization constants.
    ze_module_constants_t {
        numConstants: u32,
        pConstantIds: *const u32,
        pConstantValues: *mut *const c_void,
    }
    /// A module to build.
    ze_module_desc_t {
        stype: ze_structure_type_t,
        pNext: *const c_void,
        format: ze_module_format_t,
        inputSize: usize,
        pInputModule: *const u8,
        pBuildFlags: *const c_char,
        pConstants: *const ze_module_constants_t,
    }
    /// Of a module.
    ze_module_properties_t {
        stype: ze_structure_type_t,
        pNext: *mut c_void,
        flags: ze_flags_t,
    }
    /// A kernel of a module.
    ze_kernel_desc_t {
        stype: ze_structure_type_t,
        pNext: *const c_void,
        flags: ze_flags_t,
        pKernelName: *const c_char,
    }
    /// Of a kernel.
    ze_kernel_properties_t {
        stype: ze_structure_type_t,
        pNext: *mut c_void,
        numKernelArgs: u32,
        requiredGroupSizeX: u32,
        requiredGroupSizeY: u32,
        requiredGroupSizeZ: u32,
        requiredNumSubGroups: u32,
        requiredSubgroupSize: u32,
        maxSubgroupSize: u32,
        maxNumSubgroups: u32,
        localMemSize: u32,
        privateMemSize: u32,
        spillMemSize: u32,
        uuid: ze_kernel_uuid_t,
    }
    /// Groups of a launch.
    ze_group_count_t {
        groupCountX: u32,
        groupCountY: u32,
        groupCountZ: u32,
    }
    /// A queue to create.
    ze_command_queue_desc_t {
        stype: ze_structure_type_t,
        pNext: *const c_void,
        ordinal: u32,
        index: u32,
        flags: ze_flags_t,
        mode: ze_command_queue_mode_t,
        priority: ze_command_queue_priority_t,
    }
    /// A list to create.
    ze_command_list_desc_t {
        stype: ze_structure_type_t,
        pNext: *const c_void,
        commandQueueGroupOrdinal: u32,
        flags: ze_flags_t,
    }
    /// A fence to create.
    ze_fence_desc_t {
        stype: ze_structure_type_t,
        pNext: *const c_void,
        flags: ze_flags_t,
    }
    /// A pool of events to create.
    ze_event_pool_desc_t {
        stype: ze_structure_type_t,
        pNext: *const c_void,
        flags: ze_event_pool_flags_t,
        count: u32,
    }
    /// An event of a pool.
    ze_event_desc_t {
        stype: ze_structure_type_t,
        pNext: *const c_void,
        index: u32,
        signal: ze_event_scope_flags_t,
        wait: ze_event_scope_flags_t,
    }
    /// Start and end, in ticks.
    ze_kernel_timestamp_data_t {
        kernelStart: u64,
        kernelEnd: u64,
    }
    /// When a kernel ran.
    ze_kernel_timestamp_result_t {
        global: ze_kernel_timestamp_data_t,
        context: ze_kernel_timestamp_data_t,
    }
    /// How full a memory module is.
    zes_mem_state_t {
        stype: zes_structure_type_t,
        pNext: *const c_void,
        health: zes_mem_health_t,
        free: u64,
        size: u64,
    }
}
