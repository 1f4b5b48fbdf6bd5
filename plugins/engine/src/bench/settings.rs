//! What to measure.

use crate::error::EngineError;
use crate::model::PAGE_SIZE;
use layerlet_core::plan::Capacity;
use serde::{Deserialize, Serialize};

/// What to measure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Tokens of the prompt whose prefill is timed.
    pub prompt: usize,
    /// Most tokens of a prompt in one step.
    pub chunk: usize,
    /// Steps of a timed decoding.
    pub generate: usize,
    /// Tokens of every sequence that were fed before its first decoded one.
    pub context: usize,
    /// Sequences that are decoded together; each number is measured.
    pub batches: Vec<usize>,
    /// Further contexts that one sequence is decoded after, ascending.
    pub contexts: Vec<usize>,
    /// Timed repeats of everything.
    pub repeats: usize,
    /// Seed of the token ids.
    pub seed: u64,
    /// Bytes of the buffer that is read for the memory's bandwidth. `None` measures tokens per second
    /// and memory only: no bandwidth, no bytes, no operations.
    pub read_buffer: Option<usize>,
}

impl Settings {
    /// Refuses what cannot be measured.
    pub fn validate(&self) -> Result<(), EngineError> {
        let counts = [
            ("prompt", self.prompt),
            ("chunk", self.chunk),
            ("generate", self.generate),
            ("repeats", self.repeats),
            ("batches", self.batches.len()),
        ];
        for (what, value) in counts {
            if value == 0 {
                return Err(EngineError::request(what, 0, "at least 1"));
            }
        }
        if self.batches.contains(&0) {
            return Err(EngineError::request("a batch", 0, "at least 1"));
        }
        // A sequence only grows: what was measured after fewer tokens comes first.
        let reached = std::iter::once(self.context).chain(self.contexts.iter().copied());
        match reached.zip(&self.contexts).all(|(a, &b)| a < b) {
            true => Ok(()),
            false => {
                let found = format!("{:?}", self.contexts);
                let expected = format!("ascending numbers above {}", self.context);
                Err(EngineError::request("further contexts", found, expected))
            }
        }
    }

    /// The room that a model needs for this.
    pub fn capacity(&self) -> Capacity {
        let pages = (0..self.sequences()).map(|n| self.positions(n).div_ceil(PAGE_SIZE));
        let prompt = self.prompt.div_ceil(PAGE_SIZE);
        Capacity {
            // Two a sequence: the state after its context, and the one that moves on.
            state_slots: 2 * self.sequences() + 1,
            kv_pages: pages.sum::<usize>() + prompt,
            page_size: PAGE_SIZE,
            max_positions: self.prompt.max(self.positions(0)),
        }
    }

    /// Sequences that are decoded together, at most.
    pub(super) fn sequences(&self) -> usize {
        self.batches.iter().copied().max().unwrap_or(0)
    }

    /// Positions that a decoded sequence reaches; the further contexts are the first one's.
    pub(super) fn positions(&self, sequence: usize) -> usize {
        let further = match sequence {
            0 => self.contexts.last().copied().unwrap_or(0),
            _ => 0,
        };
        self.context.max(further).saturating_add(self.generate)
    }

    /// Width of every step's page table: one for all, so that steps of one size share a plan.
    pub(super) fn pages_per_sequence(&self) -> usize {
        let longest = self.prompt.max(self.positions(0));
        longest.div_ceil(PAGE_SIZE)
    }
}
