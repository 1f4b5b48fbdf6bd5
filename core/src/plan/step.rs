//! What changes from step to step: how large it may be, its buffers, and what the host says of each sequence.

use super::layout::ModelLayout;
use super::sampling::{SamplingBuffers, SamplingStep};
use super::{Plan, PlanError};
use crate::buffer::{Buf, BufferError, Role};
use alloc::{format, string::String};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What follows the logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Head {
    /// Nothing: the host reads logits.
    Logits,
    /// The greedy token.
    Argmax,
    /// A sampled token.
    Sample {
        /// Room for the token ids that penalties count, over all outputs.
        history: usize,
    },
}

/// Size of a step: the most rows, sequences, ... that it can hold. Smaller steps leave inert rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StepShape {
    /// Rows: tokens of all sequences together.
    pub tokens: usize,
    /// Sequences.
    pub sequences: usize,
    /// Rows whose logits are computed.
    pub outputs: usize,
    /// Pages of one sequence.
    pub pages_per_sequence: usize,
    /// What follows the logits.
    pub head: Head,
    /// Count accepted drafts.
    pub verify: bool,
    /// Make everything that a trace shows an output, so that fused kernels store it too.
    pub trace: bool,
}

/// Most rows of a step: row and pair numbers stay far below `NONE`.
pub const MAX_TOKENS: usize = 1 << 20;

impl StepShape {
    pub(super) fn check(&self, layout: &ModelLayout) -> Result<(), PlanError> {
        let history = match self.head {
            Head::Sample { history } => history.max(1),
            _ => 1,
        };
        let fields = [
            ("tokens", self.tokens, MAX_TOKENS),
            ("sequences", self.sequences, self.tokens),
            ("outputs", self.outputs, self.tokens),
            (
                "pages_per_sequence",
                self.pages_per_sequence,
                layout.capacity().kv_pages,
            ),
            ("history", history, u32::MAX as usize - 1),
        ];
        for (field, found, most) in fields {
            if found == 0 || found > most {
                let expected = format!("1 to {most}");
                return Err(PlanError::Shape {
                    field,
                    found,
                    expected,
                });
            }
        }
        Ok(())
    }
}

/// Handles of a plan's step buffers.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct StepBuffers {
    pub token_ids: Buf<u32>,
    pub positions: Buf<u32>,
    pub row_seq: Buf<u32>,
    pub seq_rows: Buf<u32>,
    pub page_table: Buf<u32>,
    pub state_read: Buf<u32>,
    pub state_write: Buf<u32>,
    pub out_rows: Buf<u32>,
    pub seq_outs: Buf<u32>,
    pub sampling: Option<SamplingBuffers>,
}

impl StepBuffers {
    pub(super) fn declare(plan: &mut Plan, shape: &StepShape) -> Result<Self, BufferError> {
        let StepShape {
            tokens: t,
            sequences: s,
            outputs: r,
            pages_per_sequence,
            ..
        } = *shape;
        let mut step = |name: &str, shape: &[usize]| {
            plan.buffers
                .declare(format!("step.{name}"), shape, Role::Step)
        };
        let buffers = StepBuffers {
            token_ids: step("token_ids", &[t])?,
            positions: step("positions", &[t])?,
            row_seq: step("row_seq", &[t])?,
            seq_rows: step("seq_rows", &[s + 1])?,
            page_table: step("page_table", &[s, pages_per_sequence])?,
            state_read: step("state_read", &[s])?,
            state_write: step("state_write", &[t])?,
            out_rows: step("out_rows", &[r])?,
            seq_outs: step("seq_outs", &[s + 1])?,
            sampling: None,
        };
        let sampling = match shape.head {
            Head::Sample { history } => Some(SamplingBuffers::declare(plan, r, history.max(1))?),
            _ => None,
        };
        Ok(StepBuffers {
            sampling,
            ..buffers
        })
    }
}

/// One sequence's part of a step.
#[derive(Clone, Copy, Debug)]
pub struct SequenceStep<'a> {
    /// Token ids of its rows.
    pub tokens: &'a [u32],
    /// Position of the first one.
    pub start: u32,
    /// Its pages, by logical order; they must reach its last position.
    pub pages: &'a [u32],
    /// Slot of the state before the first row; none for a fresh sequence.
    pub state_read: Option<u32>,
    /// `(row, slot)`: where the state after that row goes.
    pub state_writes: &'a [(usize, u32)],
    /// Rows whose logits are wanted, ascending.
    pub outputs: &'a [usize],
    /// How to draw, where the plan samples.
    pub sampling: Option<SamplingStep<'a>>,
}

/// Why the host refuses a step.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum StepError {
    #[error("the step has {found} {what}, its plan holds {most}")]
    TooMany {
        what: &'static str,
        found: usize,
        most: usize,
    },
    #[error("sequence {sequence}: {what} is {found}, expected {expected}")]
    Sequence {
        sequence: usize,
        what: String,
        found: u64,
        expected: String,
    },
    #[error("{what} {index} is used by sequences {first} and {second} in one step")]
    Shared {
        what: &'static str,
        index: u32,
        first: usize,
        second: usize,
    },
    #[error("sampling: {parameter} is {found}, expected {expected}")]
    Sampling {
        parameter: &'static str,
        found: String,
        expected: &'static str,
    },
}
