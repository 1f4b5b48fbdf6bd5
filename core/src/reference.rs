//! The reference as a backend: runs any plan op by op, each op by its definition.

use crate::backend::{Backend, BackendError, DeviceIdentity, Instance, Place, PlanId};
use crate::buffer::{BufferDecl, BufferTable, Role};
use crate::launch::{Launch, LaunchError, Layerlet};
use crate::memory::{HostBuffer, Memory};
use crate::plan::Plan;
use alloc::{boxed::Box, string::String, vec::Vec};
use core::ops::Range;

/// How a host backend executes one launch. The reference runs the definition; a CPU backend puts
/// its own kernels here and shares everything else.
pub trait Execute: Send {
    /// Runs one launch over host memory.
    fn execute(&mut self, launch: &Launch, memory: &mut Memory<'_>) -> Result<(), LaunchError>;

    /// Sees a model's buffers before anything is written to them.
    fn adopt(&mut self, _model: &mut [HostBuffer]) {}
}

/// Runs every launch by its definition.
pub struct Definition;

impl Execute for Definition {
    fn execute(&mut self, launch: &Launch, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        launch.run(memory)
    }
}

/// The backend that defines the bytes of all others.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference;

impl Backend for Reference {
    fn identity(&self) -> DeviceIdentity {
        DeviceIdentity {
            backend: "reference".into(),
            device: "host".into(),
            driver: String::new(),
            features: Vec::new(),
        }
    }

    fn layerlets(&self) -> &[Layerlet] {
        &Layerlet::ALL
    }

    fn open(&self, model: &BufferTable) -> Result<Box<dyn Instance>, BackendError> {
        Ok(Box::new(HostInstance::new(model, Definition)))
    }
}

struct Prepared {
    plan: Plan,
    local: Vec<HostBuffer>,
}

/// A model in host memory, with plans executed by `E`.
pub struct HostInstance<E> {
    table: BufferTable,
    model: Vec<HostBuffer>,
    plans: Vec<Prepared>,
    executor: E,
}

impl<E: Execute> HostInstance<E> {
    /// Takes zeroed host memory for a model.
    pub fn new(table: &BufferTable, mut executor: E) -> Self {
        let buffers = table.iter().map(|(_, decl)| HostBuffer::zeroed(decl));
        let mut model: Vec<HostBuffer> = buffers.collect();
        executor.adopt(&mut model);
        HostInstance {
            table: table.clone(),
            model,
            plans: Vec::new(),
            executor,
        }
    }

    fn resolve(&mut self, place: Place) -> Result<(&BufferDecl, &mut HostBuffer), BackendError> {
        match place {
            Place::Model(id) => {
                let decl = self.table.get(id)?;
                Ok((decl, &mut self.model[id.0 as usize]))
            }
            Place::Plan(plan_id, id) => {
                let prepared = self
                    .plans
                    .get_mut(plan_id.0 as usize)
                    .ok_or(BackendError::UnknownPlan(plan_id))?;
                let decl = prepared.plan.buffers.get(id)?;
                let index = (id.0 as usize)
                    .checked_sub(prepared.plan.model_buffers)
                    .ok_or_else(|| BackendError::WrongOwner {
                        name: decl.name.clone(),
                        found: "model",
                        expected: "plan",
                    })?;
                Ok((decl, &mut prepared.local[index]))
            }
        }
    }

    fn span(&mut self, place: Place, offset: usize, len: usize) -> Result<&mut [u8], BackendError> {
        let (decl, buffer) = self.resolve(place)?;
        let name = &decl.name;
        let bytes = buffer.bytes_mut();
        let size = bytes.len();
        let end = offset.checked_add(len).filter(|&end| end <= size);
        match end {
            Some(end) => Ok(&mut bytes[offset..end]),
            None => Err(BackendError::OutOfRange {
                name: name.clone(),
                offset,
                len,
                size,
            }),
        }
    }
}

impl<E: Execute> Instance for HostInstance<E> {
    fn write(&mut self, place: Place, offset: usize, bytes: &[u8]) -> Result<(), BackendError> {
        self.span(place, offset, bytes.len())?
            .copy_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, place: Place, offset: usize, bytes: &mut [u8]) -> Result<(), BackendError> {
        bytes.copy_from_slice(self.span(place, offset, bytes.len())?);
        Ok(())
    }

    fn prepare(&mut self, plan: &Plan) -> Result<PlanId, BackendError> {
        plan.validate()?;
        plan.check_model(&self.table)?;
        let local = plan
            .buffers
            .iter()
            .skip(plan.model_buffers)
            .map(|(_, d)| HostBuffer::zeroed(d))
            .collect();
        self.plans.push(Prepared {
            plan: plan.clone(),
            local,
        });
        Ok(PlanId((self.plans.len() - 1) as u32))
    }

    fn run_range(&mut self, plan: PlanId, launches: Range<usize>) -> Result<(), BackendError> {
        let prepared = self
            .plans
            .get_mut(plan.0 as usize)
            .ok_or(BackendError::UnknownPlan(plan))?;
        let Prepared { plan, local } = prepared;
        let mut memory = Memory::new(&plan.buffers, &mut self.model, local);
        let end = launches.end.min(plan.launches.len());
        for launch in plan.launches.get(launches.start..end).unwrap_or_default() {
            self.executor.execute(launch, &mut memory)?;
        }
        Ok(())
    }

    fn poison(&mut self, plan: PlanId, byte: u8) -> Result<(), BackendError> {
        let prepared = self
            .plans
            .get_mut(plan.0 as usize)
            .ok_or(BackendError::UnknownPlan(plan))?;
        let own = prepared
            .plan
            .buffers
            .iter()
            .skip(prepared.plan.model_buffers);
        for ((_, decl), buffer) in own.zip(&mut prepared.local) {
            if matches!(decl.role, Role::Scratch | Role::Output) {
                buffer.poison(byte);
            }
        }
        Ok(())
    }
}
