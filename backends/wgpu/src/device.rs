//! Opening a device, and what goes wrong with one.

#![allow(unsafe_code)]

use crate::pipelines::Pipelines;
use crate::{NAME, controls, self_test};
use layerlet_core::backend::{BackendError, DeviceIdentity};
use layerlet_kernels::strict::Controls;
use std::sync::{Arc, Mutex, PoisonError};
use thiserror::Error;

/// Why there is no device.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum OpenError {
    #[error(
        "no Vulkan device: {found}; Metal and DirectX cannot be used, since strict SPIR-V cannot be loaded there and \
         nothing else keeps their compilers from fusing multiplications and additions"
    )]
    NoDevice { found: String },
    #[error("{device}: {reason}")]
    Refused { device: String, reason: String },
}

/// A device with its queue.
pub struct Gpu {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    pub pipelines: Pipelines,
    pub limits: wgpu::Limits,
    controls: Controls,
    info: wgpu::AdapterInfo,
    trouble: Arc<Mutex<Option<BackendError>>>,
}

impl Gpu {
    /// The first device that passes its self-test, discrete ones first.
    pub fn open() -> Result<Gpu, OpenError> {
        let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        descriptor.backends = wgpu::Backends::VULKAN;
        descriptor.flags = wgpu::InstanceFlags::empty();
        let instance = wgpu::Instance::new(descriptor);
        let found = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::VULKAN));
        let mut adapters: Vec<wgpu::Adapter> = found.into_iter().collect();
        adapters.sort_by_key(|a| match a.get_info().device_type {
            wgpu::DeviceType::DiscreteGpu => 0,
            wgpu::DeviceType::IntegratedGpu => 1,
            wgpu::DeviceType::VirtualGpu => 2,
            wgpu::DeviceType::Other => 3,
            wgpu::DeviceType::Cpu => 4,
        });
        let mut refused = None;
        for adapter in adapters {
            match Gpu::with(&adapter) {
                Ok(gpu) => return Ok(gpu),
                Err(e) => refused = refused.or(Some(e)),
            }
        }
        let found = "the loader found no driver".into();
        Err(refused.unwrap_or(OpenError::NoDevice { found }))
    }

    fn with(adapter: &wgpu::Adapter) -> Result<Gpu, OpenError> {
        let info = adapter.get_info();
        let refuse = |reason: String| OpenError::Refused {
            device: format!("{} ({} {})", info.name, info.driver, info.driver_info),
            reason,
        };
        let features = wgpu::Features::PASSTHROUGH_SHADERS;
        if !adapter.features().contains(features) {
            return Err(refuse("does not load SPIR-V as it is".into()));
        }
        let limits = adapter.limits();
        // SAFETY: the experimental feature is the loading of SPIR-V as it is; only validated modules are loaded.
        let experimental_features = unsafe { wgpu::ExperimentalFeatures::enabled() };
        let request = adapter.request_device(&wgpu::DeviceDescriptor {
            label: Some("layerlet"),
            required_features: features,
            required_limits: limits.clone(),
            experimental_features,
            memory_hints: wgpu::MemoryHints::Performance,
            trace: wgpu::Trace::Off,
        });
        let (device, queue) = pollster::block_on(request).map_err(|e| refuse(e.to_string()))?;
        let trouble = Arc::new(Mutex::new(None));
        watch(&device, &trouble);
        let controls = controls::controls(adapter);
        let gpu = Gpu {
            pipelines: Pipelines::new(controls),
            controls,
            device,
            queue,
            limits,
            info: info.clone(),
            trouble,
        };
        self_test::pass(&gpu).map_err(|e| refuse(e.to_string()))?;
        Ok(gpu)
    }

    pub fn identity(&self) -> DeviceIdentity {
        let info = &self.info;
        let controls = [
            (
                self.controls.signed_zero_inf_nan,
                "signed-zero-inf-nan-preserve",
            ),
            (self.controls.denorm_preserve, "denorm-preserve"),
        ];
        DeviceIdentity {
            backend: NAME.into(),
            device: info.name.clone(),
            driver: format!("{} {}", info.driver, info.driver_info)
                .trim()
                .into(),
            features: controls
                .into_iter()
                .filter(|(on, _)| *on)
                .map(|(_, name)| name.into())
                .collect(),
        }
    }

    /// The first thing that went wrong with the device; it then does nothing more.
    pub fn check(&self) -> Result<(), BackendError> {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.clone().map_or(Ok(()), Err)
    }

    /// Runs what may fail for want of memory or for a fault of ours, and returns the first error.
    pub fn guarded<T>(&self, work: impl FnOnce() -> T) -> Result<T, BackendError> {
        self.check()?;
        let filters = [
            wgpu::ErrorFilter::OutOfMemory,
            wgpu::ErrorFilter::Validation,
            wgpu::ErrorFilter::Internal,
        ];
        let scopes = filters.map(|filter| self.device.push_error_scope(filter));
        let value = work();
        let mut first = Ok(());
        for scope in scopes.into_iter().rev() {
            if let Some(e) = pollster::block_on(scope.pop()) {
                first = first.and(Err(backend_error(e)));
            }
        }
        first.and_then(|()| self.check()).map(|()| value)
    }

    /// Waits until all that was submitted has run.
    pub fn wait(&self) -> Result<(), BackendError> {
        let done = self.device.poll(wgpu::PollType::wait_indefinitely());
        self.check()?;
        done.map(|_| ()).map_err(|e| BackendError::Device {
            backend: NAME.into(),
            message: e.to_string(),
        })
    }
}

/// A lost device, and errors that no scope catches, are remembered: the callbacks have nobody to tell.
fn watch(device: &wgpu::Device, trouble: &Arc<Mutex<Option<BackendError>>>) {
    let remember = |trouble: &Mutex<Option<BackendError>>, e: BackendError| {
        let mut trouble = trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.get_or_insert(e);
    };
    let lost = trouble.clone();
    device.set_device_lost_callback(move |_, message| {
        let backend = NAME.into();
        remember(&lost, BackendError::DeviceLost { backend, message });
    });
    let uncaught = trouble.clone();
    device.on_uncaptured_error(Arc::new(move |e| remember(&uncaught, backend_error(e))));
}

fn backend_error(e: wgpu::Error) -> BackendError {
    let backend = NAME.into();
    match e {
        wgpu::Error::OutOfMemory { source } => BackendError::OutOfMemory {
            backend,
            message: source.to_string(),
        },
        wgpu::Error::Validation { description, .. } | wgpu::Error::Internal { description, .. } => {
            BackendError::Device {
                backend,
                message: description,
            }
        }
    }
}
