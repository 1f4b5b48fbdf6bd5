//! Sampling parameters: what a request may ask, and how a step carries it.

use super::Plan;
use super::step::{SequenceStep, StepError, StepShape};
use super::step_input::StepInput;
use crate::NONE;
use crate::buffer::{Buf, BufferError, Role};
use crate::numerics::bf16;
use crate::ops::Sample;
use alloc::{format, vec, vec::Vec};

/// Handles of a plan's sampling parameters.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct SamplingBuffers {
    pub temperature: Buf<f32>,
    pub top_k: Buf<u32>,
    pub top_p: Buf<f32>,
    pub min_p: Buf<f32>,
    pub repetition_penalty: Buf<f32>,
    pub presence_penalty: Buf<f32>,
    pub frequency_penalty: Buf<f32>,
    pub seed: Buf<u32>,
    pub draw_position: Buf<u32>,
    pub history: Buf<u32>,
    pub history_start: Buf<u32>,
    pub history_generated: Buf<u32>,
}

impl SamplingBuffers {
    pub(super) fn declare(plan: &mut Plan, r: usize, history: usize) -> Result<Self, BufferError> {
        let t = &mut plan.buffers;
        let name = |what: &str| format!("step.sampling.{what}");
        Ok(SamplingBuffers {
            temperature: t.declare(name("temperature"), &[r], Role::Step)?,
            top_k: t.declare(name("top_k"), &[r], Role::Step)?,
            top_p: t.declare(name("top_p"), &[r], Role::Step)?,
            min_p: t.declare(name("min_p"), &[r], Role::Step)?,
            repetition_penalty: t.declare(name("repetition_penalty"), &[r], Role::Step)?,
            presence_penalty: t.declare(name("presence_penalty"), &[r], Role::Step)?,
            frequency_penalty: t.declare(name("frequency_penalty"), &[r], Role::Step)?,
            seed: t.declare(name("seed"), &[r, 2], Role::Step)?,
            draw_position: t.declare(name("draw_position"), &[r], Role::Step)?,
            history: t.declare(name("history"), &[history], Role::Step)?,
            history_start: t.declare(name("history_start"), &[r + 1], Role::Step)?,
            history_generated: t.declare(name("history_generated"), &[r], Role::Step)?,
        })
    }

    pub(super) fn launch(&self, logits: Buf<bf16>, out_rows: Buf<u32>, tokens: Buf<u32>) -> Sample {
        Sample {
            logits,
            out_rows,
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            seed: self.seed,
            draw_position: self.draw_position,
            history: self.history,
            history_start: self.history_start,
            history_generated: self.history_generated,
            tokens,
        }
    }
}

/// How the tokens of a sequence are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct SamplingParams {
    /// 0 is greedy.
    pub temperature: f32,
    /// 0 is off.
    pub top_k: u32,
    /// 1 is off.
    pub top_p: f32,
    /// 0 is off.
    pub min_p: f32,
    /// Over prompt and generated tokens; 1 is off.
    pub repetition_penalty: f32,
    /// Over generated tokens; 0 is off.
    pub presence_penalty: f32,
    /// Over generated tokens; 0 is off.
    pub frequency_penalty: f32,
    pub seed: u64,
}

impl Default for SamplingParams {
    fn default() -> Self {
        SamplingParams {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            seed: 0,
        }
    }
}

/// Logits divided by less could leave f32, and then the infinities would share the draw.
pub const MIN_TEMPERATURE: f32 = 1e-5;

impl SamplingParams {
    /// Refuses what has no meaning.
    pub fn validate(&self) -> Result<(), StepError> {
        let rules = [
            (
                "temperature",
                self.temperature,
                self.temperature == 0.0 || self.temperature >= MIN_TEMPERATURE,
                "0, or 0.00001 or more",
            ),
            (
                "top_p",
                self.top_p,
                self.top_p > 0.0 && self.top_p <= 1.0,
                "above 0, at most 1",
            ),
            (
                "min_p",
                self.min_p,
                (0.0..=1.0).contains(&self.min_p),
                "0 to 1",
            ),
            (
                "repetition_penalty",
                self.repetition_penalty,
                self.repetition_penalty > 0.0,
                "above 0",
            ),
            (
                "presence_penalty",
                self.presence_penalty,
                true,
                "a finite number",
            ),
            (
                "frequency_penalty",
                self.frequency_penalty,
                true,
                "a finite number",
            ),
        ];
        for (parameter, found, holds, expected) in rules {
            if !holds || !found.is_finite() {
                return Err(StepError::Sampling {
                    parameter,
                    found: format!("{found}"),
                    expected,
                });
            }
        }
        Ok(())
    }
}

/// Sampling of one sequence in one step.
#[derive(Clone, Copy, Debug)]
pub struct SamplingStep<'a> {
    /// How to draw.
    pub params: SamplingParams,
    /// Prompt and generated tokens up to and including the first output row's token, when the
    /// penalties need them; later output rows also count the tokens between.
    pub history: &'a [u32],
    /// Where in `history` the generated part starts.
    pub generated: usize,
}

impl StepInput {
    pub(super) fn lay_out_sampling(
        &mut self,
        shape: &StepShape,
        capacity: usize,
        sequences: &[SequenceStep<'_>],
    ) -> Result<(), StepError> {
        let mut rows: Vec<(SamplingParams, u32)> = Vec::new();
        let (mut history, mut starts, mut generated) = (Vec::new(), vec![0u32], Vec::new());
        for s in sequences {
            let sampling = s.sampling.unwrap_or(SamplingStep {
                params: SamplingParams::default(),
                history: &[],
                generated: 0,
            });
            sampling.params.validate()?;
            let first = s.outputs.first().copied().unwrap_or(0);
            for &row in s.outputs {
                generated.push((history.len() + sampling.generated) as u32);
                history.extend_from_slice(sampling.history);
                if !sampling.history.is_empty() {
                    history.extend_from_slice(&s.tokens[first + 1..=row.max(first)]);
                }
                starts.push(history.len() as u32);
                rows.push((sampling.params, s.start + row as u32 + 1));
            }
        }
        if history.len() > capacity {
            return Err(StepError::TooMany {
                what: "tokens of history",
                found: history.len(),
                most: capacity,
            });
        }
        let end = history.len() as u32;
        history.resize(capacity, NONE);
        starts.resize(shape.outputs + 1, end);
        generated.resize(shape.outputs, end);
        rows.resize(shape.outputs, (SamplingParams::default(), 0));
        let seeds = rows
            .iter()
            .flat_map(|(p, _)| [p.seed as u32, (p.seed >> 32) as u32])
            .collect();
        let u = |f: fn(&(SamplingParams, u32)) -> u32| rows.iter().map(f).collect::<Vec<_>>();
        let f = |f: fn(&SamplingParams) -> f32| rows.iter().map(|(p, _)| f(p)).collect::<Vec<_>>();
        self.extend([
            ("step.sampling.top_k", u(|r| r.0.top_k)),
            ("step.sampling.draw_position", u(|r| r.1)),
            ("step.sampling.seed", seeds),
            ("step.sampling.history", history),
            ("step.sampling.history_start", starts),
            ("step.sampling.history_generated", generated),
        ]);
        self.extend([
            ("step.sampling.temperature", f(|p| p.temperature)),
            ("step.sampling.top_p", f(|p| p.top_p)),
            ("step.sampling.min_p", f(|p| p.min_p)),
            (
                "step.sampling.repetition_penalty",
                f(|p| p.repetition_penalty),
            ),
            ("step.sampling.presence_penalty", f(|p| p.presence_penalty)),
            (
                "step.sampling.frequency_penalty",
                f(|p| p.frequency_penalty),
            ),
        ]);
        Ok(())
    }
}
