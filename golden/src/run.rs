//! Running a case on a backend so that stale, missing and shared memory shows.

use crate::case::Case;
use layerlet_core::backend::{Backend, BackendError, Instance, Place, PlanId};
use layerlet_core::buffer::{BufferDecl, BufferId, Role};
use layerlet_core::fixture::unify_nans;

/// Content of a written buffer after a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    /// Which buffer.
    pub decl: BufferDecl,
    /// Its bytes, every NaN replaced by one NaN: payloads are not part of the contract.
    pub bytes: Vec<u8>,
}

/// Bytes that scratch and outputs hold before a run: an ordinary number in every dtype, and NaN.
pub const POISONS: [u8; 2] = [0xAA, 0xFF];

/// Runs a case, then another one over the same memory, and only then reads what the first wrote.
///
/// State is read between the two, because the later call goes on from it.
pub fn run(
    backend: &dyn Backend,
    case: &Case,
    later: &Case,
    poison: u8,
) -> Result<Vec<Written>, BackendError> {
    let mut prepared = Prepared::new(backend, case)?;
    let first = prepared.plan;
    let second = prepared.instance.prepare(&later.plan)?;
    prepared.instance.poison(first, poison)?;
    prepared.instance.poison(second, poison)?;
    prepared.write(case, first, Role::Step)?;
    prepared.write(later, second, Role::Step)?;
    prepared.instance.run(first, usize::MAX)?;
    let ids = case.written();
    let (state, outputs): (Vec<BufferId>, _) = ids
        .iter()
        .partition(|id| case.decl(**id).role == Role::State);
    let mut written = prepared.read(case, first, &state)?;
    prepared.instance.run(second, usize::MAX)?;
    written.extend(prepared.read(case, first, &outputs)?);
    Ok(written)
}

/// A case whose weights and state lie on a device.
pub struct Prepared {
    instance: Box<dyn Instance>,
    plan: PlanId,
}

impl Prepared {
    /// Takes memory, writes weights and state, prepares the plan.
    pub fn new(backend: &dyn Backend, case: &Case) -> Result<Prepared, BackendError> {
        let model = case.plan.buffers.first(case.plan.model_buffers);
        let mut prepared = Prepared {
            instance: backend.open(&model)?,
            plan: PlanId(0),
        };
        prepared.write(case, PlanId(0), Role::Weight)?;
        prepared.write(case, PlanId(0), Role::State)?;
        prepared.plan = prepared.instance.prepare(&case.plan)?;
        Ok(prepared)
    }

    fn write(&mut self, case: &Case, plan: PlanId, role: Role) -> Result<(), BackendError> {
        for (id, bytes) in &case.inputs {
            if case.decl(*id).role == role {
                self.instance.write(place(case, plan, *id), 0, bytes)?;
            }
        }
        Ok(())
    }

    fn read(
        &mut self,
        case: &Case,
        plan: PlanId,
        ids: &[BufferId],
    ) -> Result<Vec<Written>, BackendError> {
        let mut written = Vec::with_capacity(ids.len());
        for id in ids {
            let decl = case.decl(*id).clone();
            let mut bytes = vec![0; decl.bytes()];
            self.instance.read(place(case, plan, *id), 0, &mut bytes)?;
            unify_nans(decl.dtype, &mut bytes);
            written.push(Written { decl, bytes });
        }
        Ok(written)
    }
}

fn place(case: &Case, plan: PlanId, id: BufferId) -> Place {
    match (id.0 as usize) < case.plan.model_buffers {
        true => Place::Model(id),
        false => Place::Plan(plan, id),
    }
}
