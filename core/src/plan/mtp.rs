//! The multi-token-prediction head as a plan: drafts for speculation.
//!
//! ```text
//! e = rms_norm(embed(next token));  hh = rms_norm(hidden)          hidden: the main model's, after its final norm
//! u = fc([e | hh]);  u = decoder layer(u), with keys and values of its own;  hidden' = rms_norm(u)
//! draft = argmax(lm_head(hidden'))                                 embedding and lm_head are the main model's
//! ```
//!
//! The first pass runs over all rows of a step: row `t` takes the hidden state at its position, and the token that
//! follows it. For more than one draft the passes are chained: each takes the draft and the hidden state of the one before,
//! one row a sequence, at the next position. Drafts can only be wrong, never change a token, so the caches of
//! this head are no part of the state that anything else reads.
//!
//! Source: vLLM `qwen3_5_mtp.py` (transformers ignores `mtp.*`).

use super::forward::{Builder, Stream};
use super::layout::{ModelLayout, MtpBuffers};
use super::parallel::logits;
use super::step::{Head, SequenceStep, StepBuffers, StepError, StepShape};
use super::step_check::{check_counts, check_owners, check_sequence};
use super::step_input::{StepInput, lay_out};
use super::{Plan, PlanError};
use crate::NONE;
use crate::buffer::{Buf, BufferError, Role};
use crate::numerics::bf16;
use crate::ops::*;
use alloc::{format, vec::Vec};

/// Size of a drafting step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MtpShape {
    /// Rows, sequences, outputs (one for each sequence that wants drafts) and pages.
    pub step: StepShape,
    /// Drafts in a chain.
    pub drafts: usize,
}

/// Most drafts of a chain.
pub const MAX_DRAFTS: usize = 16;

/// Drafts from the hidden states of a step.
///
/// Step buffers: those of the forward pass (`step.token_ids` holds the *following* tokens), `mtp.hidden` bf16 `[T, H]`,
/// and for each later pass `n` of the chain `mtp.n.positions`, `mtp.n.row_seq` and `mtp.n.rows` u32 `[R]`
/// ([`StepInput::for_mtp`] fills them all). Outputs: `mtp.n.tokens` u32 `[R]`.
pub fn mtp(layout: &ModelLayout, shape: &MtpShape) -> Result<Plan, PlanError> {
    let weights = layout.mtp.as_ref().ok_or(PlanError::Shape {
        field: "mtp_num_hidden_layers",
        found: 0,
        expected: "1: the checkpoint has no mtp.* tensors".into(),
    })?;
    check_drafts(shape.drafts)?;
    let step_shape = StepShape {
        head: Head::Argmax,
        verify: false,
        trace: false,
        ..shape.step
    };
    step_shape.check(layout)?;
    let mut plan = Plan::over(layout.table());
    let step = StepBuffers::declare(&mut plan, &step_shape)?;
    let (rows, width) = (step_shape.tokens, layout.config().hidden);
    let hidden = plan
        .buffers
        .declare("mtp.hidden", &[rows, width], Role::Step)?;
    let mut pass = Pass {
        plan,
        layout,
        weights,
        outputs: step_shape.outputs,
    };
    let (mut tokens, mut hidden) = pass.first(&step, hidden, rows)?;
    for n in 1..shape.drafts {
        (tokens, hidden) = pass.next(n, &step, tokens, hidden)?;
    }
    Ok(pass.plan)
}

fn check_drafts(found: usize) -> Result<(), PlanError> {
    match (1..=MAX_DRAFTS).contains(&found) {
        true => Ok(()),
        false => Err(PlanError::Shape {
            field: "drafts",
            found,
            expected: format!("1 to {MAX_DRAFTS}"),
        }),
    }
}

struct Pass<'a> {
    plan: Plan,
    layout: &'a ModelLayout,
    weights: &'a MtpBuffers,
    outputs: usize,
}

/// Tokens and hidden states, one row for each output.
type Drafted = (Buf<u32>, Buf<bf16>);

impl Pass<'_> {
    fn first(
        &mut self,
        step: &StepBuffers,
        hidden: Buf<bf16>,
        rows: usize,
    ) -> Result<Drafted, PlanError> {
        let normed = self.layer("mtp.0", step, hidden, rows)?;
        let picked = self.bf16("mtp.0.picked", &[self.outputs, self.layout.config().hidden])?;
        self.plan.launches.push(
            GatherRows {
                x: normed,
                rows: step.out_rows,
                out: picked,
            }
            .into(),
        );
        let tokens = self.draft("mtp.0", normed, step.out_rows)?;
        Ok((tokens, picked))
    }

    /// A later pass: its rows are the outputs of the one before.
    fn next(
        &mut self,
        n: usize,
        step: &StepBuffers,
        tokens: Buf<u32>,
        hidden: Buf<bf16>,
    ) -> Result<Drafted, PlanError> {
        let p = format!("mtp.{n}");
        let positions =
            self.plan
                .buffers
                .declare(format!("{p}.positions"), &[self.outputs], Role::Step)?;
        let row_seq =
            self.plan
                .buffers
                .declare(format!("{p}.row_seq"), &[self.outputs], Role::Step)?;
        let rows = self
            .plan
            .buffers
            .declare(format!("{p}.rows"), &[self.outputs], Role::Step)?;
        let step = StepBuffers {
            token_ids: tokens,
            positions,
            row_seq,
            ..step.clone()
        };
        let normed = self.layer(&p, &step, hidden, self.outputs)?;
        let tokens = self.draft(&p, normed, rows)?;
        Ok((tokens, normed))
    }

    /// Embedding, hidden state, fc, the decoder layer and the head's norm.
    fn layer(
        &mut self,
        p: &str,
        step: &StepBuffers,
        hidden: Buf<bf16>,
        rows: usize,
    ) -> Result<Buf<bf16>, PlanError> {
        let width = self.layout.config().hidden;
        let embed = self.bf16(&format!("{p}.embed"), &[rows, width])?;
        let (token_ids, row_seq, table) = (step.token_ids, step.row_seq, self.layout.embedding);
        self.plan.launches.push(
            Embedding {
                token_ids,
                row_seq,
                table,
                out: embed,
            }
            .into(),
        );
        let a = self.norm(
            &format!("{p}.norm_embedding"),
            embed,
            self.weights.norm_embedding,
        )?;
        let b = self.norm(
            &format!("{p}.norm_hidden"),
            hidden,
            self.weights.norm_hidden,
        )?;
        let joined = self.bf16(&format!("{p}.joined"), &[rows, 2 * width])?;
        self.plan
            .launches
            .push(ConcatColumns { a, b, out: joined }.into());
        let plan = core::mem::take(&mut self.plan);
        let mut builder = Builder {
            plan,
            layout: self.layout,
            step,
            tokens: rows,
            output: Role::Scratch,
        };
        let [u] = builder.linears(joined, [(self.weights.fc, &format!("{p}.fc"))])?;
        let out = builder.layer(p, &self.weights.layer, Stream::First(u), "")?;
        let (_, normed) = builder.norm(
            out,
            self.weights.norm,
            &format!("{p}.out"),
            &format!("{p}.hidden"),
        )?;
        self.plan = builder.plan;
        Ok(normed)
    }

    fn norm(
        &mut self,
        name: &str,
        x: Buf<bf16>,
        weight: Buf<f32>,
    ) -> Result<Buf<bf16>, BufferError> {
        let [rows, width] = self.plan.buffers.dims(x)?;
        let out = self.bf16(name, &[rows, width])?;
        let (eps, offset) = (self.layout.config().rms_norm_eps, WeightOffset::One);
        self.plan.launches.push(
            RmsNorm {
                x,
                weight,
                out,
                eps,
                offset,
                stride: width,
            }
            .into(),
        );
        Ok(out)
    }

    fn draft(
        &mut self,
        p: &str,
        x: Buf<bf16>,
        out_rows: Buf<u32>,
    ) -> Result<Buf<u32>, BufferError> {
        let name = format!("{p}.logits");
        let logits = logits(
            &mut self.plan,
            self.layout,
            x,
            out_rows,
            &name,
            Role::Scratch,
        )?;
        let tokens =
            self.plan
                .buffers
                .declare(format!("{p}.tokens"), &[self.outputs], Role::Output)?;
        self.plan.launches.push(
            Argmax {
                logits,
                out_rows,
                tokens,
            }
            .into(),
        );
        Ok(tokens)
    }

    fn bf16(&mut self, name: &str, shape: &[usize]) -> Result<Buf<bf16>, BufferError> {
        self.plan.buffers.declare(name, shape, Role::Scratch)
    }
}

impl StepInput {
    /// Step buffers of [`mtp`]: `tokens` of each sequence are those that *follow* its rows, and at most its last row drafts.
    /// Slots of conv and recurrent state mean nothing here and must be left out; the pages are those of this head.
    pub fn for_mtp(
        layout: &ModelLayout,
        shape: &MtpShape,
        sequences: &[SequenceStep<'_>],
        hidden: &[bf16],
    ) -> Result<StepInput, StepError> {
        check_counts(&shape.step, sequences)?;
        for (n, s) in sequences.iter().enumerate() {
            check_drafting(layout, shape, n, s)?;
        }
        check_owners(layout, sequences, shape.drafts - 1)?;
        let rows: usize = sequences.iter().map(|s| s.tokens.len()).sum();
        let width = layout.config().hidden;
        if hidden.len() != rows * width {
            let what = "hidden states, in elements,";
            return Err(StepError::TooMany {
                what,
                found: hidden.len(),
                most: rows * width,
            });
        }
        let mut input = StepInput::default();
        input.extend(lay_out(&shape.step, sequences));
        let mut hidden = hidden.to_vec();
        hidden.resize(shape.step.tokens * width, bf16::ZERO);
        input.extend([("mtp.hidden", hidden)]);
        input.extend((1..shape.drafts).flat_map(|n| chain(n, shape.step.outputs, sequences)));
        Ok(input)
    }
}

fn check_drafting(
    layout: &ModelLayout,
    shape: &MtpShape,
    n: usize,
    s: &SequenceStep<'_>,
) -> Result<(), StepError> {
    let refuse = |what: &str, found: u64, expected: alloc::string::String| {
        Err(StepError::Sequence {
            sequence: n,
            what: what.into(),
            found,
            expected,
        })
    };
    check_sequence(layout, &shape.step, n, s)?;
    if s.state_read.is_some() || !s.state_writes.is_empty() {
        return refuse(
            "its number of state slots",
            1,
            "0: this head has no such state".into(),
        );
    }
    let last = s.tokens.len() - 1;
    if s.outputs.len() > 1 || s.outputs.iter().any(|row| *row != last) {
        return refuse(
            "its number of drafting rows",
            s.outputs.len() as u64,
            "the last row, or none".into(),
        );
    }
    // The chain writes keys at the positions after the last row.
    let end = u64::from(s.start) + (s.tokens.len() + shape.drafts - 1) as u64;
    let room = s.pages.len() as u64 * layout.capacity().page_size as u64;
    let most = room.min(layout.capacity().max_positions as u64);
    if s.outputs.len() == 1 && end > most {
        return refuse(
            "the last position of its drafts",
            end - 1,
            format!("below {most}"),
        );
    }
    Ok(())
}

/// Positions, sequences and rows of pass `n` of the chain, by output.
fn chain(
    n: usize,
    outputs: usize,
    sequences: &[SequenceStep<'_>],
) -> [(alloc::string::String, Vec<u32>); 3] {
    let drafting = sequences
        .iter()
        .enumerate()
        .filter(|(_, s)| !s.outputs.is_empty());
    let (mut positions, mut row_seq) = (Vec::new(), Vec::new());
    for (index, s) in drafting {
        positions.push(s.start + (s.tokens.len() - 1 + n) as u32);
        row_seq.push(index as u32);
    }
    let mut rows: Vec<u32> = (0..row_seq.len() as u32).collect();
    positions.resize(outputs, 0);
    row_seq.resize(outputs, NONE);
    rows.resize(outputs, NONE);
    let name = |what: &str| format!("mtp.{n}.{what}");
    [
        (name("positions"), positions),
        (name("row_seq"), row_seq),
        (name("rows"), rows),
    ]
}
