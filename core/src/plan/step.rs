//! What changes from step to step: its buffers, and the host's checks before it fills them.

use super::layout::ModelLayout;
use super::{Plan, PlanError};
use crate::NONE;
use crate::buffer::{Buf, BufferError, Role};
use crate::numerics::bf16;
use crate::ops::Sample;
use alloc::{format, string::String, vec, vec::Vec};
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
    fn declare(plan: &mut Plan, r: usize, history: usize) -> Result<Self, BufferError> {
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

impl SamplingParams {
    /// Refuses what has no meaning.
    pub fn validate(&self) -> Result<(), StepError> {
        let rules = [
            (
                "temperature",
                self.temperature,
                self.temperature >= 0.0,
                "0 or more",
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

/// The content of a plan's step buffers.
#[derive(Clone, Debug, PartialEq)]
pub struct StepInput {
    u32s: Vec<(&'static str, Vec<u32>)>,
    f32s: Vec<(&'static str, Vec<f32>)>,
}

impl StepInput {
    /// Checks a step and lays it out.
    pub fn new(
        layout: &ModelLayout,
        shape: &StepShape,
        sequences: &[SequenceStep<'_>],
    ) -> Result<StepInput, StepError> {
        check_counts(shape, sequences)?;
        for (n, sequence) in sequences.iter().enumerate() {
            check_sequence(layout, shape, n, sequence)?;
        }
        check_owners(layout, sequences)?;
        let mut input = StepInput {
            u32s: lay_out(shape, sequences),
            f32s: Vec::new(),
        };
        if let Head::Sample { history } = shape.head {
            input.lay_out_sampling(shape, history.max(1), sequences)?;
        }
        Ok(input)
    }

    /// Buffer names and their bytes.
    pub fn buffers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let u32s = self
            .u32s
            .iter()
            .map(|(name, v)| (*name, bytemuck::cast_slice(v)));
        u32s.chain(
            self.f32s
                .iter()
                .map(|(name, v)| (*name, bytemuck::cast_slice(v))),
        )
    }

    fn lay_out_sampling(
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
        self.u32s.extend([
            ("step.sampling.top_k", u(|r| r.0.top_k)),
            ("step.sampling.draw_position", u(|r| r.1)),
            ("step.sampling.seed", seeds),
            ("step.sampling.history", history),
            ("step.sampling.history_start", starts),
            ("step.sampling.history_generated", generated),
        ]);
        self.f32s.extend([
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

fn check_counts(shape: &StepShape, sequences: &[SequenceStep<'_>]) -> Result<(), StepError> {
    let tokens = sequences.iter().map(|s| s.tokens.len()).sum();
    let outputs = sequences.iter().map(|s| s.outputs.len()).sum();
    let counts = [
        ("sequences", sequences.len(), shape.sequences),
        ("rows", tokens, shape.tokens),
        ("outputs", outputs, shape.outputs),
    ];
    match counts.into_iter().find(|(_, found, most)| found > most) {
        Some((what, found, most)) => Err(StepError::TooMany { what, found, most }),
        None => Ok(()),
    }
}

fn check_sequence(
    layout: &ModelLayout,
    shape: &StepShape,
    n: usize,
    s: &SequenceStep<'_>,
) -> Result<(), StepError> {
    let refuse = |what: String, found: u64, expected: String| {
        Err(StepError::Sequence {
            sequence: n,
            what,
            found,
            expected,
        })
    };
    let (config, capacity) = (layout.config(), layout.capacity());
    if s.tokens.is_empty() {
        return refuse("its number of rows".into(), 0, "at least 1".into());
    }
    if let Some((row, &id)) = s
        .tokens
        .iter()
        .enumerate()
        .find(|(_, id)| **id as usize >= config.vocab)
    {
        return refuse(
            format!("the token id of row {row}"),
            id.into(),
            format!("below the vocabulary's {}", config.vocab),
        );
    }
    let end = u64::from(s.start) + s.tokens.len() as u64;
    if end > capacity.max_positions as u64 {
        return refuse(
            "its last position".into(),
            end - 1,
            format!("below {}", capacity.max_positions),
        );
    }
    let needed = end.div_ceil(capacity.page_size as u64);
    let pages = s.pages.len() as u64;
    if pages < needed || s.pages.len() > shape.pages_per_sequence {
        return refuse(
            "its number of pages".into(),
            pages,
            format!("{needed} to {}", shape.pages_per_sequence),
        );
    }
    if let Some(&page) = s.pages.iter().find(|p| **p as usize >= capacity.kv_pages) {
        return refuse(
            "a page".into(),
            page.into(),
            format!("below {}", capacity.kv_pages),
        );
    }
    let slots = s
        .state_read
        .iter()
        .chain(s.state_writes.iter().map(|(_, slot)| slot));
    if let Some(&slot) = slots
        .clone()
        .find(|slot| **slot as usize >= capacity.state_slots)
    {
        return refuse(
            "a state slot".into(),
            slot.into(),
            format!("below {}", capacity.state_slots),
        );
    }
    if s.state_read.is_none() != (s.start == 0) {
        let expected = "0 for a fresh sequence (no slot to read), above 0 with a slot to read";
        return refuse("its first position".into(), s.start.into(), expected.into());
    }
    let rows = s.state_writes.iter().map(|(row, _)| row).chain(s.outputs);
    if let Some(&row) = rows.clone().find(|row| **row >= s.tokens.len()) {
        return refuse(
            "a row".into(),
            row as u64,
            format!("below its {} rows", s.tokens.len()),
        );
    }
    let twice = |w: &&[usize]| w[0] >= w[1];
    let written: Vec<usize> = s.state_writes.iter().map(|(row, _)| *row).collect();
    if let Some(w) = written
        .windows(2)
        .find(twice)
        .or(s.outputs.windows(2).find(twice))
    {
        return refuse(
            "a row".into(),
            w[1] as u64,
            format!("above {}, the row before it", w[0]),
        );
    }
    Ok(())
}

/// A sequence's use of a slot or page in a step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Use {
    index: u32,
    sequence: usize,
    write: bool,
}

/// No page and no slot may be written twice, or written for one sequence and read by another.
fn check_owners(layout: &ModelLayout, sequences: &[SequenceStep<'_>]) -> Result<(), StepError> {
    let (mut slots, mut pages) = (Vec::new(), Vec::new());
    let page_size = layout.capacity().page_size;
    for (sequence, s) in sequences.iter().enumerate() {
        let used = |index: u32, write| Use {
            index,
            sequence,
            write,
        };
        slots.extend(s.state_read.map(|slot| used(slot, false)));
        slots.extend(s.state_writes.iter().map(|(_, slot)| used(*slot, true)));
        let end = s.start as usize + s.tokens.len();
        let first_written = s.start as usize / page_size;
        let reached = s.pages.iter().take(end.div_ceil(page_size)).enumerate();
        pages.extend(reached.map(|(n, page)| used(*page, n >= first_written)));
    }
    check_uses("state slot", true, slots)?;
    check_uses("page", false, pages)
}

/// `in_place`: a sequence may write what it has read itself.
fn check_uses(what: &'static str, in_place: bool, mut uses: Vec<Use>) -> Result<(), StepError> {
    uses.sort_unstable();
    for same in uses.chunk_by(|a, b| a.index == b.index) {
        let written = same.iter().filter(|u| u.write).count();
        let (first, last) = (same[0].sequence, same[same.len() - 1].sequence);
        let alone = in_place && first == last;
        if written > 1 || written == 1 && same.len() > 1 && !alone {
            return Err(StepError::Shared {
                what,
                index: same[0].index,
                first,
                second: last,
            });
        }
    }
    Ok(())
}

fn lay_out(shape: &StepShape, sequences: &[SequenceStep<'_>]) -> Vec<(&'static str, Vec<u32>)> {
    let (mut token_ids, mut positions, mut row_seq) = (Vec::new(), Vec::new(), Vec::new());
    let (mut seq_rows, mut seq_outs, mut out_rows) = (vec![0u32], vec![0u32], Vec::new());
    let (mut page_table, mut state_read, mut state_write) = (Vec::new(), Vec::new(), Vec::new());
    for (n, s) in sequences.iter().enumerate() {
        let first = token_ids.len();
        token_ids.extend_from_slice(s.tokens);
        positions.extend((s.start..).take(s.tokens.len()));
        row_seq.resize(token_ids.len(), n as u32);
        seq_rows.push(token_ids.len() as u32);
        state_write.resize(token_ids.len(), NONE);
        for &(row, slot) in s.state_writes {
            state_write[first + row] = slot;
        }
        state_read.push(s.state_read.unwrap_or(NONE));
        page_table.extend_from_slice(s.pages);
        page_table.resize((n + 1) * shape.pages_per_sequence, NONE);
        out_rows.extend(s.outputs.iter().map(|row| (first + row) as u32));
        seq_outs.push(out_rows.len() as u32);
    }
    let (rows, outs) = (token_ids.len() as u32, out_rows.len() as u32);
    token_ids.resize(shape.tokens, 0);
    positions.resize(shape.tokens, 0);
    row_seq.resize(shape.tokens, NONE);
    state_write.resize(shape.tokens, NONE);
    seq_rows.resize(shape.sequences + 1, rows);
    seq_outs.resize(shape.sequences + 1, outs);
    state_read.resize(shape.sequences, NONE);
    page_table.resize(shape.sequences * shape.pages_per_sequence, NONE);
    out_rows.resize(shape.outputs, NONE);
    vec![
        ("step.token_ids", token_ids),
        ("step.positions", positions),
        ("step.row_seq", row_seq),
        ("step.seq_rows", seq_rows),
        ("step.page_table", page_table),
        ("step.state_read", state_read),
        ("step.state_write", state_write),
        ("step.out_rows", out_rows),
        ("step.seq_outs", seq_outs),
    ]
}
