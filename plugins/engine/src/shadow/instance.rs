//! The instance that draws launches, copies around them, and replaces kernels that were found wrong.

use super::check::{Contents, Sample, Watched};
use super::{Settings, Shared, lock};
use fastrand::Rng;
use layerlet_core::backend::{Backend, BackendError, Instance, Place, PlanId};
use layerlet_core::buffer::{BufferId, Role};
use layerlet_core::fixture::Fixture;
use layerlet_core::plan::{Plan, isolate};
use layerlet_core::reference::Reference;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

pub struct ShadowInstance {
    inner: Box<dyn Instance>,
    /// Name of the backend inside, for errors.
    backend: String,
    settings: Settings,
    shared: Arc<Shared>,
    samples: Sender<Sample>,
    rng: Rng,
    plans: HashMap<PlanId, Plan>,
    stand_ins: HashMap<(PlanId, usize), StandIn>,
}

/// A launch on the reference, with the weights that it reads.
struct StandIn {
    plan: Plan,
    instance: Box<dyn Instance>,
    id: PlanId,
}

/// What becomes of a launch.
enum Treatment {
    AsItIs,
    Watched,
    Replaced,
}

impl ShadowInstance {
    pub fn new(
        inner: Box<dyn Instance>,
        backend: String,
        settings: Settings,
        shared: Arc<Shared>,
        samples: Sender<Sample>,
    ) -> ShadowInstance {
        ShadowInstance {
            inner,
            backend,
            rng: Rng::with_seed(settings.seed),
            settings,
            shared,
            samples,
            plans: HashMap::new(),
            stand_ins: HashMap::new(),
        }
    }

    fn plan(&self, id: PlanId) -> Result<&Plan, BackendError> {
        self.plans.get(&id).ok_or(BackendError::UnknownPlan(id))
    }

    /// After a mismatch nothing runs any more, where that is the policy.
    fn refuse(&self) -> Result<(), BackendError> {
        if !self.shared.found.load(Ordering::Acquire) {
            return Ok(());
        }
        match &lock(&self.shared.verdict).stopped {
            None => Ok(()),
            Some(alarm) => Err(BackendError::Device {
                backend: self.backend.clone(),
                message: format!("stopped: {alarm}"),
            }),
        }
    }

    fn treatment(&mut self, kernel: &str) -> Treatment {
        let found = self.shared.found.load(Ordering::Acquire);
        if found && lock(&self.shared.verdict).wrong.contains(kernel) {
            Shared::add(&self.shared.replaced);
            return Treatment::Replaced;
        }
        Shared::add(&self.shared.launches);
        if !self.settings.share.draws(&mut self.rng) {
            return Treatment::AsItIs;
        }
        Shared::add(&self.shared.drawn);
        Treatment::Watched
    }

    /// Runs one launch and copies what it read and left, if there is room.
    fn watch(&mut self, id: PlanId, index: usize) -> Result<(), BackendError> {
        let whole = self.plan(id)?;
        let kernel = whole.launches[index].name();
        let plan = isolate(whole, index)?;
        let sizes = |ids: &[BufferId]| -> usize {
            let decls = ids.iter().filter_map(|id| plan.buffers.get(*id).ok());
            decls.map(|d| d.bytes()).sum()
        };
        let (inputs, results) = (inputs(&plan), Fixture::results(&plan).collect::<Vec<_>>());
        let bytes = sizes(&inputs) + sizes(&results);
        let Some(room) = self.shared.reserve(bytes, self.settings.memory) else {
            return self.inner.run_range(id, index..index + 1);
        };
        let inputs = self.copy(id, &plan, &inputs)?;
        self.inner.run_range(id, index..index + 1)?;
        let found = self.copy(id, &plan, &results)?;
        let launch = Watched {
            kernel,
            plan,
            inputs,
            found,
        };
        // The checking thread ends only when it panics; its silence must not look like agreement.
        self.samples
            .send(Sample { launch, room })
            .map_err(|_| BackendError::Device {
                backend: self.backend.clone(),
                message: "the shadow's checking thread is gone".into(),
            })
    }

    fn copy(
        &mut self,
        id: PlanId,
        plan: &Plan,
        buffers: &[BufferId],
    ) -> Result<Contents, BackendError> {
        let mut contents = Contents::with_capacity(buffers.len());
        for &buffer in buffers {
            let mut bytes = vec![0; plan.buffers.get(buffer)?.bytes()];
            if !bytes.is_empty() {
                self.inner.read(place(plan, id, buffer), 0, &mut bytes)?;
            }
            contents.push((buffer, bytes));
        }
        Ok(contents)
    }

    /// Runs one launch on the reference: state and step data there, results back.
    fn replace(&mut self, id: PlanId, index: usize) -> Result<(), BackendError> {
        let mut stand_in = match self.stand_ins.remove(&(id, index)) {
            Some(stand_in) => stand_in,
            None => self.hire(id, index)?,
        };
        let plan = &stand_in.plan;
        let changing: Vec<BufferId> = (inputs(plan).into_iter())
            .filter(|id| !has_role(plan, *id, Role::Weight))
            .collect();
        for (buffer, bytes) in self.copy(id, plan, &changing)? {
            let place = place(plan, stand_in.id, buffer);
            stand_in.instance.write(place, 0, &bytes)?;
        }
        stand_in.instance.run(stand_in.id, usize::MAX)?;
        for buffer in Fixture::results(plan) {
            let mut bytes = vec![0; plan.buffers.get(buffer)?.bytes()];
            if !bytes.is_empty() {
                let there = place(plan, stand_in.id, buffer);
                stand_in.instance.read(there, 0, &mut bytes)?;
                self.inner.write(place(plan, id, buffer), 0, &bytes)?;
            }
        }
        self.stand_ins.insert((id, index), stand_in);
        Ok(())
    }

    fn hire(&mut self, id: PlanId, index: usize) -> Result<StandIn, BackendError> {
        let plan = isolate(self.plan(id)?, index)?;
        let mut instance = Reference.open(&plan.buffers.first(plan.model_buffers))?;
        let weights: Vec<BufferId> = (inputs(&plan).into_iter())
            .filter(|id| has_role(&plan, *id, Role::Weight))
            .collect();
        for (buffer, bytes) in self.copy(id, &plan, &weights)? {
            instance.write(Place::Model(buffer), 0, &bytes)?;
        }
        Ok(StandIn {
            id: instance.prepare(&plan)?,
            plan,
            instance,
        })
    }
}

fn has_role(plan: &Plan, id: BufferId, role: Role) -> bool {
    plan.buffers.get(id).is_ok_and(|d| d.role == role)
}

/// Everything that a fixture needs bytes of.
fn inputs(plan: &Plan) -> Vec<BufferId> {
    let read = |role| matches!(role, Role::Weight | Role::State | Role::Step);
    let buffers = plan.buffers.iter().filter(|(_, decl)| read(decl.role));
    buffers.map(|(id, _)| id).collect()
}

fn place(plan: &Plan, id: PlanId, buffer: BufferId) -> Place {
    match (buffer.0 as usize) < plan.model_buffers {
        true => Place::Model(buffer),
        false => Place::Plan(id, buffer),
    }
}

impl Instance for ShadowInstance {
    fn write(&mut self, place: Place, offset: usize, bytes: &[u8]) -> Result<(), BackendError> {
        self.inner.write(place, offset, bytes)
    }

    fn read(&mut self, place: Place, offset: usize, bytes: &mut [u8]) -> Result<(), BackendError> {
        self.inner.read(place, offset, bytes)
    }

    fn prepare(&mut self, plan: &Plan) -> Result<PlanId, BackendError> {
        let id = self.inner.prepare(plan)?;
        self.plans.insert(id, plan.clone());
        Ok(id)
    }

    fn run_range(&mut self, plan: PlanId, launches: Range<usize>) -> Result<(), BackendError> {
        self.refuse()?;
        let end = launches.end.min(self.plan(plan)?.launches.len());
        let mut from = launches.start;
        for index in launches.start..end {
            let kernel = self.plan(plan)?.launches[index].name();
            let treatment = self.treatment(kernel);
            if matches!(treatment, Treatment::AsItIs) {
                continue;
            }
            if from < index {
                self.inner.run_range(plan, from..index)?;
            }
            match treatment {
                Treatment::Replaced => self.replace(plan, index)?,
                _ => self.watch(plan, index)?,
            }
            from = index + 1;
        }
        match from < end {
            true => self.inner.run_range(plan, from..end),
            false => Ok(()),
        }
    }

    fn poison(&mut self, plan: PlanId, byte: u8) -> Result<(), BackendError> {
        self.inner.poison(plan, byte)
    }
}
