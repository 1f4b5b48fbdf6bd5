//! The float controls that a Vulkan device offers. wgpu does not say.

#![allow(unsafe_code)]

use ash::vk;
use layerlet_kernels::strict::Controls;

/// Asks the device's driver; no controls where it cannot be asked.
pub fn controls(adapter: &wgpu::Adapter) -> Controls {
    // SAFETY: the handles are only used while the adapter is borrowed, and only to read properties.
    let Some(hal) = (unsafe { adapter.as_hal::<wgpu::hal::api::Vulkan>() }) else {
        return Controls::default();
    };
    if hal.shared_instance().instance_api_version() < vk::API_VERSION_1_2 {
        return Controls::default();
    }
    let mut float = vk::PhysicalDeviceFloatControlsProperties::default();
    let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut float);
    // SAFETY: the physical device belongs to this instance, which is of Vulkan 1.2 at least.
    unsafe {
        hal.shared_instance()
            .raw_instance()
            .get_physical_device_properties2(hal.raw_physical_device(), &mut properties);
    }
    if properties.properties.api_version < vk::API_VERSION_1_2 {
        return Controls::default();
    }
    Controls {
        signed_zero_inf_nan: float.shader_signed_zero_inf_nan_preserve_float32 == vk::TRUE,
        denorm_preserve: float.shader_denorm_preserve_float32 == vk::TRUE,
    }
}
