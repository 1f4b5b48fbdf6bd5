//! The GPU kernels on any Vulkan device.
//!
//! Invariants: a device computes only after its self-test; a pipeline is made of nothing but
//! [`layerlet_kernels::strict::Strict`] modules; step data that lead nowhere are refused on the host before a kernel sees
//! them. One command buffer holds all launches of a run.

mod controls;
mod device;
mod instance;
mod memory;
mod pipelines;
mod self_test;

pub use device::OpenError;

use device::Gpu;
use layerlet_core::backend::{Backend, BackendError, DeviceIdentity, Instance};
use layerlet_core::buffer::BufferTable;
use layerlet_core::launch::Layerlet;
use std::sync::Arc;

/// The name on the command line and in errors.
pub const NAME: &str = "wgpu";

/// A Vulkan device that has passed its self-test.
pub struct Wgpu {
    gpu: Arc<Gpu>,
}

impl Wgpu {
    /// The first device that passes, discrete ones first; `VK_DRIVER_FILES` chooses among drivers.
    pub fn new() -> Result<Wgpu, OpenError> {
        Ok(Wgpu {
            gpu: Arc::new(Gpu::open()?),
        })
    }
}

impl Backend for Wgpu {
    fn identity(&self) -> DeviceIdentity {
        self.gpu.identity()
    }

    fn layerlets(&self) -> &[Layerlet] {
        &Layerlet::ALL
    }

    fn open(&self, model: &BufferTable) -> Result<Box<dyn Instance>, BackendError> {
        let instance = instance::GpuInstance::new(self.gpu.clone(), model)?;
        Ok(Box::new(instance))
    }
}
