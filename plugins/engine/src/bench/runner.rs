//! Ways to run the same steps: to time them, to count what they move, to time each launch.

use crate::error::EngineError;
use crate::model::Model;
use layerlet_core::plan::{SequenceStep, StepShape};

/// Runs a step and returns the tokens that were drawn.
pub(super) trait Runner {
    fn step(
        &mut self,
        model: &mut Model,
        shape: &StepShape,
        sequences: &[SequenceStep<'_>],
    ) -> Result<Vec<u32>, EngineError>;
}

/// As generation does it.
pub(super) struct Plain;

impl Runner for Plain {
    fn step(
        &mut self,
        model: &mut Model,
        shape: &StepShape,
        sequences: &[SequenceStep<'_>],
    ) -> Result<Vec<u32>, EngineError> {
        model.step(shape, sequences)?.read("tokens", shape.outputs)
    }
}
