//! The tables of functions through which a driver hands itself to the loader.
//!
//! A field whose function has no binding here is an opaque pointer, which a driver leaves null: the loader answers
//! calls of it with `ZE_RESULT_ERROR_UNSUPPORTED_FEATURE`. Newer loaders append fields, and leave those null too.

use crate::Layout;
use crate::functions::pfn;
use std::ffi::c_void;

macro_rules! slot {
    (_) => {
        *mut c_void
    };
    ($function:ident) => {
        Option<pfn::$function>
    };
}

macro_rules! tables {
    ($($name:ident { $($field:ident: $function:tt,)* })*) => {
        $(#[doc = concat!("`", stringify!($name), "`")]
        #[repr(C)]
        #[allow(missing_docs)]
        pub struct $name { $(pub $field: slot!($function),)* })*

        /// Every table, for the check against the headers.
        pub const TABLES: &[Layout] = &[$(Layout {
            name: stringify!($name),
            size: size_of::<$name>(),
            align: align_of::<$name>(),
            fields: &[$((stringify!($field), std::mem::offset_of!($name, $field), size_of::<usize>())),*],
        }),*];
    };
}

tables! {
    ze_global_dditable_t {
        pfnInit: zeInit,
    }
    ze_driver_dditable_t {
        pfnGet: zeDriverGet,
        pfnGetApiVersion: zeDriverGetApiVersion,
        pfnGetProperties: zeDriverGetProperties,
        pfnGetIpcProperties: zeDriverGetIpcProperties,
        pfnGetExtensionProperties: zeDriverGetExtensionProperties,
        pfnGetExtensionFunctionAddress: _,
    }
    ze_device_dditable_t {
        pfnGet: zeDeviceGet,
        pfnGetSubDevices: zeDeviceGetSubDevices,
        pfnGetProperties: zeDeviceGetProperties,
        pfnGetComputeProperties: zeDeviceGetComputeProperties,
        pfnGetModuleProperties: zeDeviceGetModuleProperties,
        pfnGetCommandQueueGroupProperties: zeDeviceGetCommandQueueGroupProperties,
        pfnGetMemoryProperties: zeDeviceGetMemoryProperties,
        pfnGetMemoryAccessProperties: zeDeviceGetMemoryAccessProperties,
        pfnGetCacheProperties: zeDeviceGetCacheProperties,
        pfnGetImageProperties: _,
        pfnGetExternalMemoryProperties: _,
        pfnGetP2PProperties: _,
        pfnCanAccessPeer: zeDeviceCanAccessPeer,
        pfnGetStatus: zeDeviceGetStatus,
        pfnGetGlobalTimestamps: zeDeviceGetGlobalTimestamps,
        pfnReserveCacheExt: _,
        pfnSetCacheAdviceExt: _,
        pfnPciGetPropertiesExt: zeDevicePciGetPropertiesExt,
    }
    ze_context_dditable_t {
        pfnCreate: zeContextCreate,
        pfnDestroy: zeContextDestroy,
        pfnGetStatus: zeContextGetStatus,
        pfnSystemBarrier: _,
        pfnMakeMemoryResident: zeContextMakeMemoryResident,
        pfnEvictMemory: zeContextEvictMemory,
        pfnMakeImageResident: _,
        pfnEvictImage: _,
        pfnCreateEx: zeContextCreateEx,
    }
    ze_command_queue_dditable_t {
        pfnCreate: zeCommandQueueCreate,
        pfnDestroy: zeCommandQueueDestroy,
        pfnExecuteCommandLists: zeCommandQueueExecuteCommandLists,
        pfnSynchronize: zeCommandQueueSynchronize,
    }
    ze_command_list_dditable_t {
        pfnCreate: zeCommandListCreate,
        pfnCreateImmediate: zeCommandListCreateImmediate,
        pfnDestroy: zeCommandListDestroy,
        pfnClose: zeCommandListClose,
        pfnReset: zeCommandListReset,
        pfnAppendWriteGlobalTimestamp: zeCommandListAppendWriteGlobalTimestamp,
        pfnAppendBarrier: zeCommandListAppendBarrier,
        pfnAppendMemoryRangesBarrier: zeCommandListAppendMemoryRangesBarrier,
        pfnAppendMemoryCopy: zeCommandListAppendMemoryCopy,
        pfnAppendMemoryFill: zeCommandListAppendMemoryFill,
        pfnAppendMemoryCopyRegion: _,
        pfnAppendMemoryCopyFromContext: _,
        pfnAppendImageCopy: _,
        pfnAppendImageCopyRegion: _,
        pfnAppendImageCopyToMemory: _,
        pfnAppendImageCopyFromMemory: _,
        pfnAppendMemoryPrefetch: zeCommandListAppendMemoryPrefetch,
        pfnAppendMemAdvise: _,
        pfnAppendSignalEvent: zeCommandListAppendSignalEvent,
        pfnAppendWaitOnEvents: zeCommandListAppendWaitOnEvents,
        pfnAppendEventReset: zeCommandListAppendEventReset,
        pfnAppendQueryKernelTimestamps: _,
        pfnAppendLaunchKernel: zeCommandListAppendLaunchKernel,
        pfnAppendLaunchCooperativeKernel: zeCommandListAppendLaunchCooperativeKernel,
        pfnAppendLaunchKernelIndirect: _,
        pfnAppendLaunchMultipleKernelsIndirect: _,
        pfnAppendImageCopyToMemoryExt: _,
        pfnAppendImageCopyFromMemoryExt: _,
    }
    ze_module_dditable_t {
        pfnCreate: zeModuleCreate,
        pfnDestroy: zeModuleDestroy,
        pfnDynamicLink: _,
        pfnGetNativeBinary: zeModuleGetNativeBinary,
        pfnGetGlobalPointer: _,
        pfnGetKernelNames: zeModuleGetKernelNames,
        pfnGetProperties: zeModuleGetProperties,
        pfnGetFunctionPointer: _,
        pfnInspectLinkageExt: _,
    }
    ze_module_build_log_dditable_t {
        pfnDestroy: zeModuleBuildLogDestroy,
        pfnGetString: zeModuleBuildLogGetString,
    }
    ze_kernel_dditable_t {
        pfnCreate: zeKernelCreate,
        pfnDestroy: zeKernelDestroy,
        pfnSetCacheConfig: zeKernelSetCacheConfig,
        pfnSetGroupSize: zeKernelSetGroupSize,
        pfnSuggestGroupSize: zeKernelSuggestGroupSize,
        pfnSuggestMaxCooperativeGroupCount: zeKernelSuggestMaxCooperativeGroupCount,
        pfnSetArgumentValue: zeKernelSetArgumentValue,
        pfnSetIndirectAccess: zeKernelSetIndirectAccess,
        pfnGetIndirectAccess: _,
        pfnGetSourceAttributes: _,
        pfnGetProperties: zeKernelGetProperties,
        pfnGetName: zeKernelGetName,
    }
    ze_kernel_exp_dditable_t {
        pfnSetGlobalOffsetExp: zeKernelSetGlobalOffsetExp,
        pfnSchedulingHintExp: _,
    }
    ze_mem_dditable_t {
        pfnAllocShared: zeMemAllocShared,
        pfnAllocDevice: zeMemAllocDevice,
        pfnAllocHost: zeMemAllocHost,
        pfnFree: zeMemFree,
        pfnGetAllocProperties: zeMemGetAllocProperties,
        pfnGetAddressRange: zeMemGetAddressRange,
        pfnGetIpcHandle: _,
        pfnOpenIpcHandle: _,
        pfnCloseIpcHandle: _,
        pfnFreeExt: _,
    }
    ze_event_pool_dditable_t {
        pfnCreate: zeEventPoolCreate,
        pfnDestroy: zeEventPoolDestroy,
        pfnGetIpcHandle: _,
        pfnOpenIpcHandle: _,
        pfnCloseIpcHandle: _,
    }
    ze_event_dditable_t {
        pfnCreate: zeEventCreate,
        pfnDestroy: zeEventDestroy,
        pfnHostSignal: zeEventHostSignal,
        pfnHostSynchronize: zeEventHostSynchronize,
        pfnQueryStatus: zeEventQueryStatus,
        pfnHostReset: zeEventHostReset,
        pfnQueryKernelTimestamp: zeEventQueryKernelTimestamp,
    }
    ze_fence_dditable_t {
        pfnCreate: zeFenceCreate,
        pfnDestroy: zeFenceDestroy,
        pfnHostSynchronize: zeFenceHostSynchronize,
        pfnQueryStatus: zeFenceQueryStatus,
        pfnReset: zeFenceReset,
    }
    zes_device_dditable_t {
        pfnGetProperties: _,
        pfnGetState: _,
        pfnReset: _,
        pfnProcessesGetState: _,
        pfnPciGetProperties: _,
        pfnPciGetState: _,
        pfnPciGetBars: _,
        pfnPciGetStats: _,
        pfnEnumDiagnosticTestSuites: _,
        pfnEnumEngineGroups: _,
        pfnEventRegister: _,
        pfnEnumFabricPorts: _,
        pfnEnumFans: _,
        pfnEnumFirmwares: _,
        pfnEnumFrequencyDomains: _,
        pfnEnumLeds: _,
        pfnEnumMemoryModules: zesDeviceEnumMemoryModules,
        pfnEnumPerformanceFactorDomains: _,
        pfnEnumPowerDomains: _,
        pfnGetCardPowerDomain: _,
        pfnEnumPsus: _,
        pfnEnumRasErrorSets: _,
        pfnEnumSchedulers: _,
        pfnEnumStandbyDomains: _,
        pfnEnumTemperatureSensors: _,
        pfnEccAvailable: _,
        pfnEccConfigurable: _,
        pfnGetEccState: _,
        pfnSetEccState: _,
    }
    zes_memory_dditable_t {
        pfnGetProperties: _,
        pfnGetState: zesMemoryGetState,
        pfnGetBandwidth: _,
    }
}
