//! What steps move and compute.

use super::profile::Launches;
use super::runner::Runner;
use crate::error::EngineError;
use crate::model::{Model, Step};
use layerlet_core::NONE;
use layerlet_core::plan::{SequenceStep, StepShape};
use layerlet_core::work::{Occupancy, Routed, Work};
use std::collections::BTreeSet;

/// Counts the launches of the plan that is timed. Where routes decide, the same step is run with a trace,
/// whose bytes are the same and which shows them.
#[derive(Default)]
pub(super) struct Counter {
    pub launches: Launches<Work>,
}

impl Runner for Counter {
    fn step(
        &mut self,
        model: &mut Model,
        shape: &StepShape,
        sequences: &[SequenceStep<'_>],
    ) -> Result<Vec<u32>, EngineError> {
        let mut step = occupancy(sequences);
        let layers = model.layout().layers.len();
        let k = model.layout().config().moe.top_k;
        let (tokens, routes) = match step.rows {
            1 => {
                let tokens = model
                    .step(shape, sequences)?
                    .read("tokens", shape.outputs)?;
                (tokens, vec![one_row(k); layers])
            }
            _ => traced(model, shape, sequences, [layers, k])?,
        };
        let plan = model.plan(shape)?;
        for (layer, routed) in routes.into_iter().enumerate() {
            let offsets = format!("layers.{layer}.expert_offsets");
            step.routes.insert(plan.buffers.find(&offsets)?, routed);
        }
        for (launch, work) in plan.launches.iter().zip(plan.work(&step)) {
            self.launches.add(launch.name(), work);
        }
        Ok(tokens)
    }
}

/// The step with everything shown: its tokens, and the routes of every layer.
fn traced(
    model: &mut Model,
    shape: &StepShape,
    sequences: &[SequenceStep<'_>],
    [layers, k]: [usize; 2],
) -> Result<(Vec<u32>, Vec<Routed>), EngineError> {
    let shown = StepShape {
        trace: true,
        ..*shape
    };
    let mut step = model.step(&shown, sequences)?;
    let routes = (0..layers).map(|layer| routed(&mut step, layer, shape.tokens * k));
    let routes = routes.collect::<Result<_, _>>()?;
    Ok((step.read("tokens", shape.outputs)?, routes))
}

/// A router picks different experts for a row.
fn one_row(k: usize) -> Routed {
    Routed {
        pairs: k as u64,
        experts: k as u64,
    }
}

fn occupancy(sequences: &[SequenceStep<'_>]) -> Occupancy {
    let mut step = Occupancy::default();
    for s in sequences {
        step.rows += s.tokens.len() as u64;
        step.state_reads += u64::from(s.state_read.is_some());
        step.state_writes += s.state_writes.len() as u64;
        step.positions += u64::from(s.start) + s.tokens.len() as u64;
    }
    step
}

fn routed(step: &mut Step<'_>, layer: usize, pairs: usize) -> Result<Routed, EngineError> {
    let mut ids: Vec<u32> = step.read(&format!("layers.{layer}.router_ids"), pairs)?;
    ids.retain(|&id| id != NONE);
    Ok(Routed {
        pairs: ids.len() as u64,
        experts: BTreeSet::from_iter(&ids).len() as u64,
    })
}
