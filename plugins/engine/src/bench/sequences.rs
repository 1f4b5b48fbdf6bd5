//! The sequences that are run, each in slots and pages of its own.

use super::runner::Runner;
use super::settings::Settings;
use crate::error::EngineError;
use crate::model::{Model, PAGE_SIZE};
use layerlet_core::numerics::draw_u64;
use layerlet_core::plan::{Head, SequenceStep, StepShape};

/// A sequence whose first tokens are drawn at random, for no content is more typical than another.
struct Sequence {
    text: Vec<u32>,
    pages: Vec<u32>,
    /// Holds the state after `fed` tokens; decoding leaves it as it is.
    kept_slot: u32,
    /// Holds the state of a decoding.
    live_slot: u32,
    fed: usize,
}

/// Those that are decoded, and one whose prompt is fed over and over.
pub(super) struct Sequences {
    decoded: Vec<Sequence>,
    prompt: Sequence,
    chunk: usize,
    pages_per_sequence: usize,
}

impl Sequences {
    /// Lays them out in a model that was loaded with room for them.
    pub fn new(settings: &Settings, vocab: usize) -> Sequences {
        let (mut next_page, mut next_slot) = (0, 0);
        let mut sequence = |n: usize, positions: usize, slots: u32| {
            let pages = positions.div_ceil(PAGE_SIZE) as u32;
            let (first_page, first_slot) = (next_page, next_slot);
            (next_page, next_slot) = (next_page + pages, next_slot + slots);
            Sequence {
                text: random_ids(settings.seed, n as u64, positions, vocab),
                pages: (first_page..next_page).collect(),
                kept_slot: first_slot,
                live_slot: next_slot - 1,
                fed: 0,
            }
        };
        let decoded = (0..settings.sequences())
            .map(|n| sequence(n, settings.positions(n), 2))
            .collect();
        Sequences {
            decoded,
            prompt: sequence(settings.sequences(), settings.prompt, 1),
            chunk: settings.chunk,
            pages_per_sequence: settings.pages_per_sequence(),
        }
    }

    /// Feeds the whole prompt, from a fresh state, up to its first token.
    pub fn prefill(
        &mut self,
        model: &mut Model,
        runner: &mut impl Runner,
    ) -> Result<(), EngineError> {
        self.prompt.fed = 0;
        let end = self.prompt.text.len();
        self.prompt
            .feed_to(end, self.chunk, self.pages_per_sequence, model, runner)
    }

    /// Brings the first `batch` sequences to `context` tokens, where they are not there yet.
    pub fn fill(
        &mut self,
        batch: usize,
        context: usize,
        model: &mut Model,
        runner: &mut impl Runner,
    ) -> Result<(), EngineError> {
        let pages = self.pages_per_sequence;
        self.decoded[..batch]
            .iter_mut()
            .try_for_each(|s| s.feed_to(context, self.chunk, pages, model, runner))
    }

    /// Decodes `steps` tokens of each of the first `batch` sequences from their filled contexts on.
    pub fn decode(
        &mut self,
        batch: usize,
        steps: usize,
        model: &mut Model,
        runner: &mut impl Runner,
    ) -> Result<(), EngineError> {
        let shape = shape(batch, batch, self.pages_per_sequence);
        let sequences = &self.decoded[..batch];
        let mut tokens: Vec<u32> = sequences.iter().map(|s| s.text[s.fed]).collect();
        for n in 0..steps {
            let writes: Vec<_> = sequences.iter().map(|s| [(0, s.live_slot)]).collect();
            let step: Vec<_> = sequences
                .iter()
                .zip(tokens.chunks_exact(1))
                .zip(&writes)
                .map(|((s, token), writes)| s.decode_step(n, token, writes))
                .collect();
            tokens = runner.step(model, &shape, &step)?;
        }
        Ok(())
    }
}

impl Sequence {
    fn feed_to(
        &mut self,
        end: usize,
        chunk: usize,
        pages_per_sequence: usize,
        model: &mut Model,
        runner: &mut impl Runner,
    ) -> Result<(), EngineError> {
        while self.fed < end {
            let count = chunk.min(end - self.fed);
            let step = SequenceStep {
                tokens: &self.text[self.fed..self.fed + count],
                start: self.fed as u32,
                pages: &self.pages,
                state_read: (self.fed > 0).then_some(self.kept_slot),
                state_writes: &[(count - 1, self.kept_slot)],
                outputs: &[count - 1],
                sampling: None,
            };
            let shape = shape(count.next_power_of_two(), 1, pages_per_sequence);
            runner.step(model, &shape, &[step])?;
            self.fed += count;
        }
        Ok(())
    }

    /// The `n`-th token after the context.
    fn decode_step<'a>(
        &'a self,
        n: usize,
        token: &'a [u32],
        state_writes: &'a [(usize, u32)],
    ) -> SequenceStep<'a> {
        let state_read = match (n, self.fed) {
            (0, 0) => None,
            (0, _) => Some(self.kept_slot),
            _ => Some(self.live_slot),
        };
        SequenceStep {
            tokens: token,
            start: (self.fed + n) as u32,
            pages: &self.pages,
            state_read,
            state_writes,
            outputs: &[0],
            sampling: None,
        }
    }
}

fn shape(tokens: usize, sequences: usize, pages_per_sequence: usize) -> StepShape {
    StepShape {
        tokens,
        sequences,
        outputs: sequences,
        pages_per_sequence,
        head: Head::Argmax,
        verify: false,
        trace: false,
    }
}

/// Ids that depend on seed, sequence and position alone.
fn random_ids(seed: u64, sequence: u64, count: usize, vocab: usize) -> Vec<u32> {
    let seed = seed.wrapping_add(sequence << 32);
    let draw = |position| (draw_u64(seed, position) % vocab as u64) as u32;
    (0..count as u32).map(draw).collect()
}
