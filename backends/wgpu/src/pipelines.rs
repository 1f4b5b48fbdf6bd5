//! Compute pipelines, one for each kernel with its constants and each way its buffers are used, shared by all
//! instances of a device.

#![allow(unsafe_code)]

use crate::NAME;
use crate::device::Gpu;
use layerlet_core::backend::BackendError;
use layerlet_kernels::module::{Kernel, Use};
use layerlet_kernels::strict::{Controls, Strict};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A compiled kernel and the layout that its buffers are bound by.
pub struct Pipeline {
    pub compute: wgpu::ComputePipeline,
    pub layout: wgpu::BindGroupLayout,
}

/// Which bindings lie in memory that nothing writes while a device computes. Only these are bound for reading alone: a
/// buffer that holds the inputs and the outputs of one kernel has one use.
type Constant = Vec<bool>;

/// Every pipeline that has been asked for.
pub struct Pipelines {
    controls: Controls,
    made: Mutex<HashMap<(Kernel, Constant), Arc<Pipeline>>>,
}

impl Pipelines {
    pub fn new(controls: Controls) -> Pipelines {
        let made = Mutex::default();
        Pipelines { controls, made }
    }

    pub fn get(
        &self,
        gpu: &Gpu,
        kernel: &Kernel,
        constant: &Constant,
    ) -> Result<Arc<Pipeline>, BackendError> {
        let key = (kernel.clone(), constant.clone());
        let lock = || self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pipeline) = lock().get(&key) {
            return Ok(pipeline.clone());
        }
        let fail = |message: String| BackendError::Device {
            backend: NAME.into(),
            message: format!("{}: {message}", kernel.name),
        };
        let strict = Strict::compile(kernel, self.controls).map_err(|e| fail(e.to_string()))?;
        if strict.bindings().len() != constant.len() + 1 {
            let (found, wanted) = (constant.len(), strict.bindings().len() - 1);
            return Err(fail(format!("{found} buffers, the kernel has {wanted}")));
        }
        let pipeline = Arc::new(gpu.guarded(|| make(&gpu.device, kernel, &strict, constant))?);
        lock().insert(key, pipeline.clone());
        Ok(pipeline)
    }
}

fn make(device: &wgpu::Device, kernel: &Kernel, strict: &Strict, constant: &Constant) -> Pipeline {
    let [x, y, z] = strict.workgroup();
    let descriptor = wgpu::ShaderModuleDescriptorPassthrough {
        label: Some(kernel.name),
        entry_points: Cow::Owned(vec![wgpu::PassthroughShaderEntryPoint {
            name: "main".into(),
            workgroup_size: (x, y, z),
        }]),
        spirv: Some(Cow::Borrowed(strict.words())),
        ..Default::default()
    };
    // SAFETY: naga validated the module and the pass only decorated it; indices were checked on the host.
    let module = unsafe { device.create_shader_module_passthrough(descriptor) };
    let uses = strict.bindings().iter().zip(0u32..);
    let entries: Vec<wgpu::BindGroupLayoutEntry> = uses
        .map(|(used, binding)| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                ty: match used {
                    Use::Uniform => wgpu::BufferBindingType::Uniform,
                    Use::Read | Use::Write => wgpu::BufferBindingType::Storage {
                        read_only: constant[binding as usize],
                    },
                },
                has_dynamic_offset: false,
                min_binding_size: None,
            },
            count: None,
        })
        .collect();
    let layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
        label: Some(kernel.name),
        entries: &entries,
    });
    let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: Some(kernel.name),
        bind_group_layouts: &[Some(&layout)],
        immediate_size: 0,
    });
    let compute = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(kernel.name),
        layout: Some(&pipeline_layout),
        module: &module,
        entry_point: Some("main"),
        compilation_options: Default::default(),
        cache: None,
    });
    Pipeline { compute, layout }
}
