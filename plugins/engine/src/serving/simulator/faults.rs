//! Planted faults: each of them must be found by some of the lives.

use super::life::live;
use crate::serving::Batch;
use layerlet_core::NONE;
use layerlet_core::backend::{Backend, BackendError, DeviceIdentity, Instance, Place, PlanId};
use layerlet_core::buffer::BufferTable;
use layerlet_core::launch::Layerlet;
use layerlet_core::plan::Plan;
use layerlet_core::reference::Reference;
use std::collections::HashMap;
use std::ops::Range;

fn found(backend: &dyn Backend, mut tamper: impl FnMut(&mut Batch)) -> bool {
    (0..40).any(|seed| live(seed, backend, &mut tamper).is_err())
}

/// Case 18: a fresh sequence reads a slot as the last request left it.
#[test]
fn a_slot_that_is_not_reset_is_found() {
    let fault = |name: &str, words: &mut [u32]| {
        if name == "step.state_read" {
            words
                .iter_mut()
                .filter(|slot| **slot == NONE)
                .for_each(|slot| *slot = 0);
        }
    };
    assert!(found(&Faulty(fault), |_| {}));
}

/// A page table that names the page before twice.
#[test]
fn a_stale_page_is_found() {
    let fault = |name: &str, words: &mut [u32]| {
        if name == "step.page_table" && words.len() > 2 && words[2] != NONE {
            words[2] = words[1];
        }
    };
    assert!(found(&Faulty(fault), |_| {}));
}

/// Case 22: a page is known by its own tokens, whatever stood before them.
#[test]
fn a_wrong_prefix_is_found() {
    assert!(found(&Reference, |batch| {
        batch.cache.chain = |_, tokens| crate::serving::prefix::chained(None, tokens);
    }));
}

/// Case 21: the state after one draft too few is kept.
#[test]
fn a_wrong_slot_after_verification_is_found() {
    assert!(found(&Reference, |batch| {
        // The slots of two sequences change places.
        if let [first, second, ..] = batch.running.as_mut_slice()
            && first.slot.is_some()
            && second.slot.is_some()
        {
            std::mem::swap(&mut first.slot, &mut second.slot);
        }
    }));
}

/// Case 34: a request that went leaves its page behind.
#[test]
fn a_lost_page_is_found() {
    assert!(found(&Reference, |batch| {
        if let Some(sequence) = batch.running.first_mut() {
            sequence.pages.pop();
        }
    }));
}

/// The reference, but for what it is told of a step.
struct Faulty<F>(F);

impl<F: Fn(&str, &mut [u32]) + Copy + Send + Sync + 'static> Backend for Faulty<F> {
    fn identity(&self) -> DeviceIdentity {
        Reference.identity()
    }

    fn layerlets(&self) -> &[Layerlet] {
        &[]
    }

    fn open(&self, model: &BufferTable) -> Result<Box<dyn Instance>, BackendError> {
        Ok(Box::new(FaultyInstance {
            fault: self.0,
            inner: Reference.open(model)?,
            tables: HashMap::new(),
        }))
    }
}

struct FaultyInstance<F> {
    fault: F,
    inner: Box<dyn Instance>,
    tables: HashMap<PlanId, BufferTable>,
}

impl<F: Fn(&str, &mut [u32]) + Send> Instance for FaultyInstance<F> {
    fn write(&mut self, place: Place, offset: usize, bytes: &[u8]) -> Result<(), BackendError> {
        let Place::Plan(plan, buffer) = place else {
            return self.inner.write(place, offset, bytes);
        };
        let name = self.tables[&plan].get(buffer)?.name.clone();
        let mut changed = bytes.to_vec();
        if changed.len().is_multiple_of(4) {
            let mut words: Vec<u32> = bytemuck::pod_collect_to_vec(&changed);
            (self.fault)(&name, &mut words);
            changed = bytemuck::cast_slice(&words).to_vec();
        }
        self.inner.write(place, offset, &changed)
    }

    fn read(&mut self, place: Place, offset: usize, bytes: &mut [u8]) -> Result<(), BackendError> {
        self.inner.read(place, offset, bytes)
    }

    fn prepare(&mut self, plan: &Plan) -> Result<PlanId, BackendError> {
        let id = self.inner.prepare(plan)?;
        self.tables.insert(id, plan.buffers.clone());
        Ok(id)
    }

    fn run_range(&mut self, plan: PlanId, launches: Range<usize>) -> Result<(), BackendError> {
        self.inner.run_range(plan, launches)
    }

    fn poison(&mut self, plan: PlanId, byte: u8) -> Result<(), BackendError> {
        self.inner.poison(plan, byte)
    }
}
