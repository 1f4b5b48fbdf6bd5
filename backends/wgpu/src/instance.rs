//! One model's memory on a device, and the plans recorded over it.

use crate::NAME;
use crate::device::Gpu;
use crate::memory::{Arenas, Place as Spot};
use crate::pipelines::Pipeline;
use layerlet_core::backend::{BackendError, Instance, Place, PlanId};
use layerlet_core::buffer::{BufferDecl, BufferId, BufferTable, Role};
use layerlet_core::plan::Plan;
use layerlet_kernels::lower::{self, Binding, Dispatch, LowerError};
use layerlet_kernels::refusal::{self, StepData};
use std::ops::Range;
use std::sync::Arc;
use wgpu::BufferUsages;

/// The uniform words of a dispatch.
const STEP: u64 = 16;

/// A model's buffers: weights in memory that is only read, state in memory that launches write.
pub struct GpuInstance {
    gpu: Arc<Gpu>,
    table: BufferTable,
    constant: Arenas,
    written: Arenas,
    /// By buffer: where it lies, and whether among the constant ones.
    places: Vec<(Spot, bool)>,
    plans: Vec<Prepared>,
}

struct Prepared {
    plan: Plan,
    memory: Arenas,
    /// By buffer of the plan's own.
    places: Vec<Spot>,
    /// Step buffers as the host wrote them.
    step: Step,
    /// Kernels of each launch.
    launches: Vec<Vec<Recorded>>,
}

struct Recorded {
    pipeline: Arc<Pipeline>,
    bindings: wgpu::BindGroup,
    groups: [u32; 3],
}

/// The host's copy of step buffers, by buffer of the plan.
struct Step(Vec<Option<Vec<u32>>>);

impl StepData for Step {
    fn words(&self, buffer: BufferId) -> Option<&[u32]> {
        self.0.get(buffer.0 as usize)?.as_deref()
    }
}

fn not_lowered(e: LowerError) -> BackendError {
    match e {
        LowerError::Buffer(e) => e.into(),
        LowerError::Launch(e) => e.into(),
        other => BackendError::Device {
            backend: NAME.into(),
            message: other.to_string(),
        },
    }
}

impl GpuInstance {
    pub fn new(gpu: Arc<Gpu>, table: &BufferTable) -> Result<GpuInstance, BackendError> {
        let weight = |d: &BufferDecl| d.role == Role::Weight;
        let sizes = |weights: bool| {
            let decls = table.iter().map(|(_, d)| d);
            decls
                .filter(move |d| weight(d) == weights)
                .map(|d| d.bytes() as u64)
        };
        let (constant, weights) = Arenas::new(&gpu, sizes(true), BufferUsages::STORAGE)?;
        let (written, states) = Arenas::new(&gpu, sizes(false), BufferUsages::STORAGE)?;
        let (mut weights, mut states) = (weights.into_iter(), states.into_iter());
        let places = table.iter().filter_map(|(_, d)| match weight(d) {
            true => weights.next().map(|spot| (spot, true)),
            false => states.next().map(|spot| (spot, false)),
        });
        Ok(GpuInstance {
            places: places.collect(),
            table: table.clone(),
            plans: Vec::new(),
            gpu,
            constant,
            written,
        })
    }

    /// The memory and the spot of a buffer, after a check of the range.
    fn resolve(
        &self,
        place: Place,
        offset: usize,
        len: usize,
    ) -> Result<(&Arenas, Spot), BackendError> {
        let (decl, memory, spot) = match place {
            Place::Model(id) => {
                let decl = self.table.get(id)?;
                let (spot, constant) = self.places[id.0 as usize];
                let memory = if constant {
                    &self.constant
                } else {
                    &self.written
                };
                (decl, memory, spot)
            }
            Place::Plan(plan, id) => {
                let prepared = self.prepared(plan)?;
                let decl = prepared.plan.buffers.get(id)?;
                let own = (id.0 as usize).checked_sub(prepared.plan.model_buffers);
                let own = own.ok_or_else(|| BackendError::WrongOwner {
                    name: decl.name.clone(),
                    found: "model",
                    expected: "plan",
                })?;
                (decl, &prepared.memory, prepared.places[own])
            }
        };
        let size = decl.bytes();
        match offset.checked_add(len).filter(|&end| end <= size) {
            Some(_) => Ok((memory, spot)),
            None => Err(BackendError::OutOfRange {
                name: decl.name.clone(),
                offset,
                len,
                size,
            }),
        }
    }

    fn prepared(&self, plan: PlanId) -> Result<&Prepared, BackendError> {
        let found = self.plans.get(plan.0 as usize);
        found.ok_or(BackendError::UnknownPlan(plan))
    }

    fn record(
        &self,
        plan: &Plan,
        dispatch: &Dispatch,
        (memory, uniforms): (&Arenas, &Arenas),
        spots: (&[Spot], &[Spot], Spot),
    ) -> Result<Recorded, BackendError> {
        let (own, scratch, uniform) = spots;
        let place = |binding: &Binding| match binding {
            Binding::Scratch(n) => (memory.binding(scratch[*n]), false),
            Binding::Buffer(id) => match (id.0 as usize).checked_sub(plan.model_buffers) {
                Some(n) => (memory.binding(own[n]), false),
                None => {
                    let (spot, constant) = self.places[id.0 as usize];
                    let arenas = if constant {
                        &self.constant
                    } else {
                        &self.written
                    };
                    (arenas.binding(spot), constant)
                }
            },
        };
        let (mut resources, constant): (Vec<_>, Vec<bool>) =
            dispatch.bindings.iter().map(place).unzip();
        resources.push(uniforms.binding(uniform));
        let pipeline = self
            .gpu
            .pipelines
            .get(&self.gpu, &dispatch.kernel, &constant)?;
        let entries = resources.into_iter().zip(0u32..);
        let entries: Vec<wgpu::BindGroupEntry<'_>> = entries
            .map(|(resource, binding)| wgpu::BindGroupEntry { binding, resource })
            .collect();
        let bindings = self.gpu.guarded(|| {
            self.gpu
                .device
                .create_bind_group(&wgpu::BindGroupDescriptor {
                    label: Some(dispatch.kernel.name),
                    layout: &pipeline.layout,
                    entries: &entries,
                })
        })?;
        Ok(Recorded {
            pipeline,
            bindings,
            groups: dispatch.groups,
        })
    }
}

impl Instance for GpuInstance {
    fn write(&mut self, place: Place, offset: usize, bytes: &[u8]) -> Result<(), BackendError> {
        let (memory, spot) = self.resolve(place, offset, bytes.len())?;
        memory.write(&self.gpu, spot, offset, bytes)?;
        if let Place::Plan(plan, id) = place {
            let step = &mut self.plans[plan.0 as usize].step.0[id.0 as usize];
            if let Some(words) = step {
                bytemuck::cast_slice_mut(words)[offset..][..bytes.len()].copy_from_slice(bytes);
            }
        }
        Ok(())
    }

    fn read(&mut self, place: Place, offset: usize, bytes: &mut [u8]) -> Result<(), BackendError> {
        let (memory, spot) = self.resolve(place, offset, bytes.len())?;
        memory.read(&self.gpu, spot, offset, bytes)
    }

    fn prepare(&mut self, plan: &Plan) -> Result<PlanId, BackendError> {
        plan.validate()?;
        plan.check_model(&self.table)?;
        let lowered = plan.launches.iter().map(|l| lower::lower(l, &plan.buffers));
        let lowered = lowered
            .collect::<Result<Vec<_>, _>>()
            .map_err(not_lowered)?;
        let own: Vec<&BufferDecl> = plan
            .buffers
            .iter()
            .skip(plan.model_buffers)
            .map(|(_, d)| d)
            .collect();
        let kernels = lowered.iter().map(|l| l.dispatches.len()).sum();
        let scratch = lowered.iter().flat_map(|l| l.scratch.iter().copied());
        let sizes = own.iter().map(|d| d.bytes() as u64).chain(scratch);
        let (memory, mut places) = Arenas::new(&self.gpu, sizes, BufferUsages::STORAGE)?;
        let uniform_sizes = std::iter::repeat_n(STEP, kernels);
        let (uniforms, uniform_places) =
            Arenas::new(&self.gpu, uniform_sizes, BufferUsages::UNIFORM)?;
        let mut scratch = places.split_off(own.len()).into_iter();
        let mut uniform = uniform_places.into_iter();
        let mut launches = Vec::with_capacity(lowered.len());
        for launch in &lowered {
            let own_scratch: Vec<Spot> = scratch.by_ref().take(launch.scratch.len()).collect();
            let mut recorded = Vec::with_capacity(launch.dispatches.len());
            for (dispatch, spot) in launch.dispatches.iter().zip(uniform.by_ref()) {
                uniforms.write(&self.gpu, spot, 0, bytemuck::cast_slice(&dispatch.step))?;
                let spots = (&places[..], &own_scratch[..], spot);
                recorded.push(self.record(plan, dispatch, (&memory, &uniforms), spots)?);
            }
            launches.push(recorded);
        }
        let step = plan.buffers.iter().map(|(_, d)| {
            let host = d.role == Role::Step && d.dtype.size() == 4;
            host.then(|| vec![0; d.elements()])
        });
        self.plans.push(Prepared {
            plan: plan.clone(),
            step: Step(step.collect()),
            memory,
            places,
            launches,
        });
        Ok(PlanId((self.plans.len() - 1) as u32))
    }

    fn run_range(&mut self, plan: PlanId, launches: Range<usize>) -> Result<(), BackendError> {
        let prepared = self.prepared(plan)?;
        let end = launches.end.min(prepared.plan.launches.len());
        let range = launches.start.min(end)..end;
        for launch in &prepared.plan.launches[range.clone()] {
            refusal::refuse(launch, &prepared.plan.buffers, &prepared.step)?;
        }
        self.gpu.guarded(|| {
            let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
            let mut pass = encoder.begin_compute_pass(&Default::default());
            for recorded in prepared.launches[range].iter().flatten() {
                let [x, y, z] = recorded.groups;
                pass.set_pipeline(&recorded.pipeline.compute);
                pass.set_bind_group(0, &recorded.bindings, &[]);
                pass.dispatch_workgroups(x, y, z);
            }
            drop(pass);
            self.gpu.queue.submit([encoder.finish()]);
        })
    }

    fn poison(&mut self, plan: PlanId, byte: u8) -> Result<(), BackendError> {
        let prepared = self.prepared(plan)?;
        let own = prepared
            .plan
            .buffers
            .iter()
            .skip(prepared.plan.model_buffers);
        for ((_, decl), &spot) in own.zip(&prepared.places) {
            if matches!(decl.role, Role::Scratch | Role::Output) {
                // Whole words: the last one belongs to this buffer alone.
                let bytes = vec![byte; decl.bytes().next_multiple_of(4)];
                prepared.memory.write(&self.gpu, spot, 0, &bytes)?;
            }
        }
        Ok(())
    }
}
