//! A step on the device: its shape, its content, and what comes back.
//!
//! Shapes come in few sizes, so that the plans of a long life are bounded in number.

use super::batch::Batch;
use super::reserve::Part;
use super::sequence::Sequence;
use super::settings::Spec;
use crate::error::EngineError;
use layerlet_core::numerics::bf16;
use layerlet_core::plan::{Head, SamplingStep, SequenceStep, StepShape};

/// Least room for the tokens that penalties count.
const LEAST_HISTORY: usize = 256;

/// What a step left for the host.
pub(super) enum Drew {
    /// A token for each output, and the number of accepted drafts of each sequence, where there were any.
    Tokens(Vec<u32>, Option<Vec<u32>>),
    /// A row of logits for each output.
    Logits(Vec<bf16>),
}

pub(super) struct Ran {
    pub drew: Drew,
    /// Rows after the final norm, where the prediction head wants them.
    pub hidden: Vec<bf16>,
}

impl Batch {
    pub(super) fn run(&mut self, parts: &[Part]) -> Result<Ran, EngineError> {
        let shape = self.shape(parts);
        let steps: Vec<SequenceStep<'_>> = (self.running.iter().zip(parts))
            .map(|(sequence, part)| sequence.step(part))
            .collect();
        let layout = self.model.layout();
        let (vocab, width) = (layout.config().vocab, layout.config().hidden);
        let outputs: usize = parts.iter().map(|p| p.outputs.len()).sum();
        let rows: usize = parts.iter().map(|p| p.tokens.len()).sum();
        let mut step = self.model.step(&shape, &steps)?;
        let drew = match shape.head {
            Head::Logits => Drew::Logits(step.read("logits", outputs * vocab)?),
            _ => {
                let accepted = match shape.verify {
                    true => Some(step.read("accepted", parts.len())?),
                    false => None,
                };
                Drew::Tokens(step.read("tokens", outputs)?, accepted)
            }
        };
        let hidden = match self.settings.spec {
            Spec::Mtp { .. } => step.read("final_norm", rows * width)?,
            _ => Vec::new(),
        };
        Ok(Ran { drew, hidden })
    }

    fn shape(&self, parts: &[Part]) -> StepShape {
        let rows: usize = parts.iter().map(|p| p.tokens.len()).sum();
        let outputs: usize = parts.iter().map(|p| p.outputs.len()).sum();
        let tokens = rows.next_power_of_two();
        let head = self.head(parts);
        let most = self.settings.max_sequences;
        let outputs = match head {
            Head::Logits => outputs.next_power_of_two(),
            _ => (most * (1 + self.settings.spec.drafts())).next_power_of_two(),
        };
        StepShape {
            tokens,
            sequences: most.min(tokens),
            outputs: outputs.min(tokens),
            pages_per_sequence: self.pages_per_sequence(),
            head,
            verify: head != Head::Logits && parts.iter().any(|p| p.drafts > 0),
            trace: false,
        }
    }

    fn head(&self, parts: &[Part]) -> Head {
        let drawing = || {
            let both = self.running.iter().zip(parts);
            both.filter(|(_, part)| !part.outputs.is_empty())
        };
        if drawing().any(|(sequence, _)| sequence.request.needs_logits()) {
            return Head::Logits;
        }
        let penalised = drawing().filter(|(sequence, _)| sequence.request.penalised());
        let history: usize = penalised
            .flat_map(|(s, p)| p.outputs.iter().map(|row| s.fed + row + 1))
            .sum();
        let sampled = drawing().any(|(s, _)| s.request.sampling.temperature != 0.0);
        match (history, sampled) {
            (0, false) => Head::Argmax,
            (0, true) => Head::Sample { history: 1 },
            (n, _) => Head::Sample {
                history: n.next_power_of_two().max(LEAST_HISTORY),
            },
        }
    }

    /// One width of page tables for all steps.
    pub(super) fn pages_per_sequence(&self) -> usize {
        let capacity = self.model.layout().capacity();
        capacity
            .kv_pages
            .min(self.pages_for(capacity.max_positions))
    }
}

impl Sequence {
    fn step<'a>(&'a self, part: &'a Part) -> SequenceStep<'a> {
        let history = match (part.outputs.first(), self.request.penalised()) {
            (Some(row), true) => &self.text[..self.fed + row + 1],
            _ => &[],
        };
        SequenceStep {
            tokens: &part.tokens,
            start: self.fed as u32,
            pages: &self.pages,
            state_read: self.slot,
            state_writes: &part.writes,
            outputs: &part.outputs,
            sampling: Some(SamplingStep {
                params: self.request.sampling,
                history,
                generated: history.len().min(self.request.prompt.len()),
            }),
        }
    }
}
