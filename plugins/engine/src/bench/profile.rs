//! Where the time goes: passes over a plan launch by launch, summed up by operation or layerlet.

use super::report::OperationTime;
use super::runner::Runner;
use super::summary::Summary;
use crate::error::EngineError;
use crate::model::Model;
use layerlet_core::launch::Launch;
use layerlet_core::plan::{SequenceStep, StepShape};
use layerlet_core::work::Work;
use std::ops::AddAssign;
use std::time::Duration;

/// Sums over the launches of the same name, in order of their first one.
#[derive(Clone, Debug, Default)]
pub(super) struct Launches<T> {
    pub sums: Vec<LaunchSum<T>>,
}

/// All launches of one name.
#[derive(Clone, Debug)]
pub(super) struct LaunchSum<T> {
    pub name: &'static str,
    pub launches: usize,
    pub sum: T,
}

impl<T: AddAssign + Copy> Launches<T> {
    pub fn add(&mut self, name: &'static str, value: T) {
        match self.sums.iter_mut().find(|s| s.name == name) {
            Some(known) => {
                known.launches += 1;
                known.sum += value;
            }
            None => self.sums.push(LaunchSum {
                name,
                launches: 1,
                sum: value,
            }),
        }
    }

    pub fn find(&self, name: &str) -> Option<&LaunchSum<T>> {
        self.sums.iter().find(|s| s.name == name)
    }
}

impl Launches<Work> {
    /// Over all launches.
    pub fn total(&self) -> Work {
        self.sums.iter().map(|s| s.sum).sum()
    }
}

/// Times every launch of the steps of a pass.
#[derive(Default)]
pub(super) struct Profiler {
    pass: Launches<Duration>,
    passes: Vec<Launches<Duration>>,
}

impl Profiler {
    /// Ends a pass; what is timed next belongs to another.
    pub fn end_pass(&mut self) {
        self.passes.push(std::mem::take(&mut self.pass));
    }

    /// Median times of the passes beside the work of `counted`, which saw one pass; all of it a step, of
    /// which a pass has `steps`.
    pub fn operations(&self, counted: &Launches<Work>, steps: usize) -> Vec<OperationTime> {
        let operations = counted.sums.iter().map(|s| self.operation(s, steps));
        let mut operations: Vec<OperationTime> = operations.collect();
        let total: f64 = operations.iter().map(|o| o.seconds).sum();
        for operation in &mut operations {
            operation.share = operation.seconds / total;
        }
        operations.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        operations
    }

    fn operation(&self, counted: &LaunchSum<Work>, steps: usize) -> OperationTime {
        let times = self
            .passes
            .iter()
            .filter_map(|pass| pass.find(counted.name));
        let seconds = times.map(|sum| sum.sum.as_secs_f64()).collect();
        let work = counted.sum;
        OperationTime {
            name: counted.name.into(),
            launches: counted.launches / steps,
            seconds: Summary::new(seconds).median / steps as f64,
            share: 0.0,
            work: Work {
                bytes: work.bytes / steps as u64,
                int8_multiply_adds: work.int8_multiply_adds / steps as u64,
                bf16_multiply_adds: work.bf16_multiply_adds / steps as u64,
            },
        }
    }
}

impl Runner for Profiler {
    fn step(
        &mut self,
        model: &mut Model,
        shape: &StepShape,
        sequences: &[SequenceStep<'_>],
    ) -> Result<Vec<u32>, EngineError> {
        let pass = &mut self.pass;
        let time = |launch: &Launch, spent| pass.add(launch.name(), spent);
        let mut step = model.step_by_launch(shape, sequences, time)?;
        step.read("tokens", shape.outputs)
    }
}
