//! Backends with a planted fault.
#![allow(dead_code)]

use layerlet_core::backend::{Backend, BackendError, DeviceIdentity, Instance, Place, PlanId};
use layerlet_core::buffer::BufferTable;
use layerlet_core::launch::{Launch, LaunchError, Layerlet};
use layerlet_core::memory::Memory;
use layerlet_core::plan::Plan;
use layerlet_core::reference::{Execute, HostInstance, Reference};
use std::ops::Range;

/// Runs launches in its own way.
pub type Kernel = fn(&Launch, &mut Memory<'_>) -> Result<(), LaunchError>;

/// A backend by one function.
#[derive(Clone, Copy)]
pub struct Planted(pub Kernel);

impl Execute for Planted {
    fn execute(&mut self, launch: &Launch, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        (self.0)(launch, memory)
    }
}

fn identity() -> DeviceIdentity {
    DeviceIdentity {
        backend: "planted".into(),
        ..Reference.identity()
    }
}

impl Backend for Planted {
    fn identity(&self) -> DeviceIdentity {
        identity()
    }

    fn layerlets(&self) -> &[Layerlet] {
        &Layerlet::ALL
    }

    fn open(&self, model: &BufferTable) -> Result<Box<dyn Instance>, BackendError> {
        Ok(Box::new(HostInstance::new(model, *self)))
    }
}

/// A backend on which every plan writes to the memory of the plan that ran last: right until the
/// next call.
pub struct OneMemory;

impl Backend for OneMemory {
    fn identity(&self) -> DeviceIdentity {
        identity()
    }

    fn layerlets(&self) -> &[Layerlet] {
        &Layerlet::ALL
    }

    fn open(&self, model: &BufferTable) -> Result<Box<dyn Instance>, BackendError> {
        Ok(Box::new(LastRun {
            inner: Reference.open(model)?,
            last: None,
        }))
    }
}

struct LastRun {
    inner: Box<dyn Instance>,
    last: Option<PlanId>,
}

impl Instance for LastRun {
    fn write(&mut self, place: Place, offset: usize, bytes: &[u8]) -> Result<(), BackendError> {
        self.inner.write(place, offset, bytes)
    }

    fn read(&mut self, place: Place, offset: usize, bytes: &mut [u8]) -> Result<(), BackendError> {
        let place = match place {
            Place::Plan(plan, id) => Place::Plan(self.last.unwrap_or(plan), id),
            model => model,
        };
        self.inner.read(place, offset, bytes)
    }

    fn prepare(&mut self, plan: &Plan) -> Result<PlanId, BackendError> {
        self.inner.prepare(plan)
    }

    fn run_range(&mut self, plan: PlanId, launches: Range<usize>) -> Result<(), BackendError> {
        self.last = Some(plan);
        self.inner.run_range(plan, launches)
    }

    fn poison(&mut self, plan: PlanId, byte: u8) -> Result<(), BackendError> {
        self.inner.poison(plan, byte)
    }
}
