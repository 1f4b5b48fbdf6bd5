//! Where drafts come from. A draft is fed behind the last token; it stays if it is the target's own choice.

use super::batch::Batch;
use super::reserve::Part;
use super::sequence::Sequence;
use super::settings::Spec;
use crate::error::EngineError;
use layerlet_core::numerics::bf16;
use layerlet_core::plan::{Head, MtpShape, SequenceStep, StepShape};

/// Longest run of last tokens that is looked for in the text.
const LONGEST: usize = 4;

impl Spec {
    /// At most `most` tokens that may follow a sequence's text.
    pub(super) fn propose(&self, sequence: &Sequence, most: usize) -> Vec<u32> {
        // A processor hears of every token once, and of none that is not one.
        if sequence.request.processor.is_some() {
            return Vec::new();
        }
        let most = most.min(self.drafts());
        let text = &sequence.text;
        let drafts = match self {
            Spec::Off => &[],
            Spec::NGram { .. } => followers(text),
            Spec::Mtp { .. } => sequence.drafts.as_slice(),
            Spec::Oracle { tokens, .. } => {
                let known = tokens
                    .iter()
                    .find(|t| t.starts_with(&sequence.request.prompt));
                known.and_then(|t| t.get(text.len()..)).unwrap_or(&[])
            }
        };
        drafts[..most.min(drafts.len())].to_vec()
    }
}

/// What followed the longest run of last tokens where the text had it last.
fn followers(text: &[u32]) -> &[u32] {
    for length in (1..=LONGEST.min(text.len().saturating_sub(1))).rev() {
        let (before, run) = (&text[..text.len() - 1], &text[text.len() - length..]);
        if let Some(at) = before.windows(length).rposition(|w| w == run) {
            return &text[at + length..];
        }
    }
    &[]
}

impl Batch {
    /// Feeds the prediction head what the step fed, and keeps its drafts. `bases` are the sequences' lengths before the
    /// step, `hidden` its rows' states after the final norm.
    pub(super) fn predict(
        &mut self,
        parts: &[Part],
        bases: &[usize],
        hidden: &[bf16],
    ) -> Result<(), EngineError> {
        let Spec::Mtp { k } = self.settings.spec else {
            return Ok(());
        };
        let capacity = *self.model.layout().capacity();
        let width = self.model.layout().config().hidden;
        let (mut steps, mut rows) = (Vec::new(), Vec::new());
        let (mut drafting, mut first) = (Vec::new(), 0);
        let last_row: Vec<[usize; 1]> = (0..parts.len())
            .map(|n| [self.running[n].fed.saturating_sub(bases[n] + 1)])
            .collect();
        for (n, part) in parts.iter().enumerate() {
            let (sequence, base) = (&self.running[n], bases[n]);
            let count = sequence.fed - base;
            let at = first * width;
            first += part.tokens.len();
            if sequence.finished() {
                continue;
            }
            rows.extend_from_slice(&hidden[at..at + count * width]);
            let end = sequence.fed + k - 1;
            let room = capacity
                .max_positions
                .min(sequence.pages.len() * capacity.page_size);
            let drafts = part.draws.is_some()
                && sequence.left_to_generate() > 1
                && sequence.request.processor.is_none()
                && end <= room;
            if drafts {
                drafting.push(n);
            }
            steps.push(SequenceStep {
                tokens: &sequence.text[base + 1..=sequence.fed],
                start: base as u32,
                pages: &sequence.pages,
                state_read: None,
                state_writes: &[],
                outputs: if drafts { &last_row[n] } else { &[] },
                sampling: None,
            });
        }
        if steps.is_empty() {
            return Ok(());
        }
        let tokens = (rows.len() / width).next_power_of_two();
        let most = self.settings.max_sequences.min(tokens);
        let step = StepShape {
            tokens,
            sequences: most,
            outputs: most,
            pages_per_sequence: self.pages_per_sequence(),
            head: Head::Argmax,
            verify: false,
            trace: false,
        };
        let drafts = self
            .model
            .draft(&MtpShape { step, drafts: k }, &steps, &rows)?;
        for (row, n) in drafting.into_iter().enumerate() {
            self.running[n].drafts = drafts.iter().map(|pass| pass[row]).collect();
        }
        Ok(())
    }
}
