//! Every function that is called, with its signature.

use crate::Signature;
use crate::constants::*;
use crate::loader::OpenError;
use crate::structs::*;
use libloading::Library;
use std::ffi::{c_char, c_void};
use std::path::PathBuf;

macro_rules! functions {
    ($($name:ident($($parameter:ident: $type:ty),* $(,)?);)*) => {
        /// The types of the functions.
        pub mod pfn {
            use super::*;
            $(#[doc = concat!("`", stringify!($name), "`")]
            pub type $name = unsafe extern "C" fn($($parameter: $type),*) -> ze_result_t;)*
        }

        /// The loader's functions. They live as long as this does.
        #[allow(missing_docs)]
        pub struct Api {
            $(pub $name: pfn::$name,)*
            /// Where it was found.
            pub path: PathBuf,
            _library: Library,
        }

        impl Api {
            pub(crate) fn from_library(library: Library, path: PathBuf) -> Result<Api, OpenError> {
                $(
                    // SAFETY: the headers give the function of this name this type, which the tests check.
                    let found = unsafe { library.get::<pfn::$name>(concat!(stringify!($name), "\0").as_bytes()) };
                    let $name = match found {
                        Ok(symbol) => *symbol,
                        Err(source) => {
                            return Err(OpenError::Function { path, function: stringify!($name), source });
                        }
                    };
                )*
                Ok(Api { $($name,)* path, _library: library })
            }
        }

        /// Every function, for the check against the headers.
        pub const SIGNATURES: &[Signature] =
            &[$(Signature { name: stringify!($name), parameters: &[$(stringify!($type)),*] }),*];
    };
}

functions! {
    zeInit(flags: ze_init_flags_t);
    zeDriverGet(count: *mut u32, drivers: *mut ze_driver_handle_t);
    zeDriverGetApiVersion(driver: ze_driver_handle_t, version: *mut ze_api_version_t);
    zeDriverGetProperties(driver: ze_driver_handle_t, properties: *mut ze_driver_properties_t);
    zeDriverGetIpcProperties(driver: ze_driver_handle_t, properties: *mut ze_driver_ipc_properties_t);
    zeDriverGetExtensionProperties(
        driver: ze_driver_handle_t,
        count: *mut u32,
        properties: *mut ze_driver_extension_properties_t,
    );
    zeDeviceGet(driver: ze_driver_handle_t, count: *mut u32, devices: *mut ze_device_handle_t);
    zeDeviceGetSubDevices(device: ze_device_handle_t, count: *mut u32, devices: *mut ze_device_handle_t);
    zeDeviceGetProperties(device: ze_device_handle_t, properties: *mut ze_device_properties_t);
    zeDeviceGetComputeProperties(device: ze_device_handle_t, properties: *mut ze_device_compute_properties_t);
    zeDeviceGetModuleProperties(device: ze_device_handle_t, properties: *mut ze_device_module_properties_t);
    zeDeviceGetCommandQueueGroupProperties(
        device: ze_device_handle_t,
        count: *mut u32,
        properties: *mut ze_command_queue_group_properties_t,
    );
    zeDeviceGetMemoryProperties(
        device: ze_device_handle_t,
        count: *mut u32,
        properties: *mut ze_device_memory_properties_t,
    );
    zeDeviceGetMemoryAccessProperties(
        device: ze_device_handle_t,
        properties: *mut ze_device_memory_access_properties_t,
    );
    zeDeviceGetCacheProperties(
        device: ze_device_handle_t,
        count: *mut u32,
        properties: *mut ze_device_cache_properties_t,
    );
    zeDeviceCanAccessPeer(device: ze_device_handle_t, peer: ze_device_handle_t, value: *mut ze_bool_t);
    zeDeviceGetStatus(device: ze_device_handle_t);
    zeDeviceGetGlobalTimestamps(device: ze_device_handle_t, host: *mut u64, ticks: *mut u64);
    zeDevicePciGetPropertiesExt(device: ze_device_handle_t, properties: *mut ze_pci_ext_properties_t);
    zeContextCreate(driver: ze_driver_handle_t, desc: *const ze_context_desc_t, context: *mut ze_context_handle_t);
    zeContextCreateEx(
        driver: ze_driver_handle_t,
        desc: *const ze_context_desc_t,
        count: u32,
        devices: *mut ze_device_handle_t,
        context: *mut ze_context_handle_t,
    );
    zeContextDestroy(context: ze_context_handle_t);
    zeContextGetStatus(context: ze_context_handle_t);
    zeContextMakeMemoryResident(
        context: ze_context_handle_t,
        device: ze_device_handle_t,
        pointer: *mut c_void,
        size: usize,
    );
    zeContextEvictMemory(
        context: ze_context_handle_t,
        device: ze_device_handle_t,
        pointer: *mut c_void,
        size: usize,
    );
    zeMemAllocShared(
        context: ze_context_handle_t,
        device_desc: *const ze_device_mem_alloc_desc_t,
        host_desc: *const ze_host_mem_alloc_desc_t,
        size: usize,
        alignment: usize,
        device: ze_device_handle_t,
        pointer: *mut *mut c_void,
    );
    zeMemAllocDevice(
        context: ze_context_handle_t,
        desc: *const ze_device_mem_alloc_desc_t,
        size: usize,
        alignment: usize,
        device: ze_device_handle_t,
        pointer: *mut *mut c_void,
    );
    zeMemAllocHost(
        context: ze_context_handle_t,
        desc: *const ze_host_mem_alloc_desc_t,
        size: usize,
        alignment: usize,
        pointer: *mut *mut c_void,
    );
    zeMemFree(context: ze_context_handle_t, pointer: *mut c_void);
    zeMemGetAllocProperties(
        context: ze_context_handle_t,
        pointer: *const c_void,
        properties: *mut ze_memory_allocation_properties_t,
        device: *mut ze_device_handle_t,
    );
    zeMemGetAddressRange(
        context: ze_context_handle_t,
        pointer: *const c_void,
        base: *mut *mut c_void,
        size: *mut usize,
    );
    zeModuleCreate(
        context: ze_context_handle_t,
        device: ze_device_handle_t,
        desc: *const ze_module_desc_t,
        module: *mut ze_module_handle_t,
        log: *mut ze_module_build_log_handle_t,
    );
    zeModuleDestroy(module: ze_module_handle_t);
    zeModuleGetNativeBinary(module: ze_module_handle_t, size: *mut usize, binary: *mut u8);
    zeModuleGetKernelNames(module: ze_module_handle_t, count: *mut u32, names: *mut *const c_char);
    zeModuleGetProperties(module: ze_module_handle_t, properties: *mut ze_module_properties_t);
    zeModuleBuildLogDestroy(log: ze_module_build_log_handle_t);
    zeModuleBuildLogGetString(log: ze_module_build_log_handle_t, size: *mut usize, text: *mut c_char);
    zeKernelCreate(module: ze_module_handle_t, desc: *const ze_kernel_desc_t, kernel: *mut ze_kernel_handle_t);
    zeKernelDestroy(kernel: ze_kernel_handle_t);
    zeKernelSetGroupSize(kernel: ze_kernel_handle_t, x: u32, y: u32, z: u32);
    zeKernelSuggestGroupSize(
        kernel: ze_kernel_handle_t,
        global_x: u32,
        global_y: u32,
        global_z: u32,
        x: *mut u32,
        y: *mut u32,
        z: *mut u32,
    );
    zeKernelSuggestMaxCooperativeGroupCount(kernel: ze_kernel_handle_t, count: *mut u32);
    zeKernelSetArgumentValue(kernel: ze_kernel_handle_t, index: u32, size: usize, value: *const c_void);
    zeKernelSetIndirectAccess(kernel: ze_kernel_handle_t, flags: ze_kernel_indirect_access_flags_t);
    zeKernelSetCacheConfig(kernel: ze_kernel_handle_t, flags: ze_cache_config_flags_t);
    zeKernelGetProperties(kernel: ze_kernel_handle_t, properties: *mut ze_kernel_properties_t);
    zeKernelGetName(kernel: ze_kernel_handle_t, size: *mut usize, name: *mut c_char);
    zeKernelSetGlobalOffsetExp(kernel: ze_kernel_handle_t, x: u32, y: u32, z: u32);
    zeCommandQueueCreate(
        context: ze_context_handle_t,
        device: ze_device_handle_t,
        desc: *const ze_command_queue_desc_t,
        queue: *mut ze_command_queue_handle_t,
    );
    zeCommandQueueDestroy(queue: ze_command_queue_handle_t);
    zeCommandQueueExecuteCommandLists(
        queue: ze_command_queue_handle_t,
        count: u32,
        lists: *mut ze_command_list_handle_t,
        fence: ze_fence_handle_t,
    );
    zeCommandQueueSynchronize(queue: ze_command_queue_handle_t, timeout: u64);
    zeCommandListCreate(
        context: ze_context_handle_t,
        device: ze_device_handle_t,
        desc: *const ze_command_list_desc_t,
        list: *mut ze_command_list_handle_t,
    );
    zeCommandListCreateImmediate(
        context: ze_context_handle_t,
        device: ze_device_handle_t,
        desc: *const ze_command_queue_desc_t,
        list: *mut ze_command_list_handle_t,
    );
    zeCommandListDestroy(list: ze_command_list_handle_t);
    zeCommandListClose(list: ze_command_list_handle_t);
    zeCommandListReset(list: ze_command_list_handle_t);
    zeCommandListAppendWriteGlobalTimestamp(
        list: ze_command_list_handle_t,
        target: *mut u64,
        signal: ze_event_handle_t,
        waits: u32,
        events: *mut ze_event_handle_t,
    );
    zeCommandListAppendBarrier(
        list: ze_command_list_handle_t,
        signal: ze_event_handle_t,
        waits: u32,
        events: *mut ze_event_handle_t,
    );
    zeCommandListAppendMemoryRangesBarrier(
        list: ze_command_list_handle_t,
        ranges: u32,
        sizes: *const usize,
        pointers: *mut *const c_void,
        signal: ze_event_handle_t,
        waits: u32,
        events: *mut ze_event_handle_t,
    );
    zeCommandListAppendMemoryCopy(
        list: ze_command_list_handle_t,
        target: *mut c_void,
        source: *const c_void,
        size: usize,
        signal: ze_event_handle_t,
        waits: u32,
        events: *mut ze_event_handle_t,
    );
    zeCommandListAppendMemoryFill(
        list: ze_command_list_handle_t,
        target: *mut c_void,
        pattern: *const c_void,
        pattern_size: usize,
        size: usize,
        signal: ze_event_handle_t,
        waits: u32,
        events: *mut ze_event_handle_t,
    );
    zeCommandListAppendMemoryPrefetch(list: ze_command_list_handle_t, pointer: *const c_void, size: usize);
    zeCommandListAppendSignalEvent(list: ze_command_list_handle_t, event: ze_event_handle_t);
    zeCommandListAppendWaitOnEvents(list: ze_command_list_handle_t, count: u32, events: *mut ze_event_handle_t);
    zeCommandListAppendEventReset(list: ze_command_list_handle_t, event: ze_event_handle_t);
    zeCommandListAppendLaunchKernel(
        list: ze_command_list_handle_t,
        kernel: ze_kernel_handle_t,
        groups: *const ze_group_count_t,
        signal: ze_event_handle_t,
        waits: u32,
        events: *mut ze_event_handle_t,
    );
    zeCommandListAppendLaunchCooperativeKernel(
        list: ze_command_list_handle_t,
        kernel: ze_kernel_handle_t,
        groups: *const ze_group_count_t,
        signal: ze_event_handle_t,
        waits: u32,
        events: *mut ze_event_handle_t,
    );
    zeFenceCreate(queue: ze_command_queue_handle_t, desc: *const ze_fence_desc_t, fence: *mut ze_fence_handle_t);
    zeFenceDestroy(fence: ze_fence_handle_t);
    zeFenceHostSynchronize(fence: ze_fence_handle_t, timeout: u64);
    zeFenceQueryStatus(fence: ze_fence_handle_t);
    zeFenceReset(fence: ze_fence_handle_t);
    zeEventPoolCreate(
        context: ze_context_handle_t,
        desc: *const ze_event_pool_desc_t,
        count: u32,
        devices: *mut ze_device_handle_t,
        pool: *mut ze_event_pool_handle_t,
    );
    zeEventPoolDestroy(pool: ze_event_pool_handle_t);
    zeEventCreate(pool: ze_event_pool_handle_t, desc: *const ze_event_desc_t, event: *mut ze_event_handle_t);
    zeEventDestroy(event: ze_event_handle_t);
    zeEventHostSignal(event: ze_event_handle_t);
    zeEventHostSynchronize(event: ze_event_handle_t, timeout: u64);
    zeEventQueryStatus(event: ze_event_handle_t);
    zeEventHostReset(event: ze_event_handle_t);
    zeEventQueryKernelTimestamp(event: ze_event_handle_t, result: *mut ze_kernel_timestamp_result_t);
    zesDeviceEnumMemoryModules(device: zes_device_handle_t, count: *mut u32, modules: *mut zes_mem_handle_t);
    zesMemoryGetState(memory: zes_mem_handle_t, state: *mut zes_mem_state_t);
}
