//! How many requests share the model, and how.

use crate::error::EngineError;
use crate::model::PAGE_SIZE;
use layerlet_core::plan::{Capacity, MAX_DRAFTS, ModelLayout};

/// Where drafts come from. None of them changes a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Spec {
    /// No drafts.
    #[default]
    Off,
    /// What followed the last tokens where the text had them before.
    NGram {
        /// Most drafts of a step.
        k: usize,
    },
    /// The checkpoint's prediction head, chained.
    Mtp {
        /// Most drafts of a step.
        k: usize,
    },
    /// Known texts, prompt and all that follows: a request takes the first that begins with its prompt.
    Oracle {
        /// Most drafts of a step.
        k: usize,
        /// The texts.
        tokens: Vec<Vec<u32>>,
    },
}

impl Spec {
    /// Most drafts of a sequence in one step.
    pub fn drafts(&self) -> usize {
        match self {
            Spec::Off => 0,
            Spec::NGram { k } | Spec::Mtp { k } | Spec::Oracle { k, .. } => *k,
        }
    }
}

/// What the engine may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Most sequences of a step.
    pub max_sequences: usize,
    /// Most rows of a step, all sequences together.
    pub token_budget: usize,
    /// Most requests that wait; more are refused.
    pub queue: usize,
    /// Most pages that the prefix cache keeps; 0 turns it off.
    pub prefix_cache_pages: usize,
    /// Most states of conv and recurrence that it keeps; without any nothing can be found again.
    pub state_snapshots: usize,
    /// Where drafts come from.
    pub spec: Spec,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            max_sequences: 32,
            token_budget: 512,
            queue: 256,
            prefix_cache_pages: usize::MAX,
            state_snapshots: 16,
            spec: Spec::Off,
        }
    }
}

impl Settings {
    /// Room for this, with `kv_pages` pages of keys and values and texts of up to `max_positions` tokens.
    pub fn capacity(&self, max_positions: usize, kv_pages: usize) -> Capacity {
        let sequence = 1 + self.spec.drafts();
        Capacity {
            state_slots: self.max_sequences * sequence + self.state_snapshots + 1,
            kv_pages,
            page_size: PAGE_SIZE,
            max_positions,
        }
    }

    pub(super) fn validate(&self, layout: &ModelLayout) -> Result<(), EngineError> {
        let counts = [
            ("max_sequences", self.max_sequences, self.token_budget),
            ("queue", self.queue, usize::MAX),
        ];
        for (what, value, most) in counts {
            if value == 0 || value > most {
                return Err(EngineError::request(what, value, format!("1 to {most}")));
            }
        }
        if self.spec != Spec::Off && !(1..=MAX_DRAFTS).contains(&self.spec.drafts()) {
            let expected = format!("1 to {MAX_DRAFTS}");
            let what = "the number of drafts";
            return Err(EngineError::request(what, self.spec.drafts(), expected));
        }
        if matches!(self.spec, Spec::Mtp { .. }) && layout.mtp.is_none() {
            let expected = "a checkpoint with a prediction head (mtp.* tensors)";
            return Err(EngineError::request("speculation", "mtp", expected));
        }
        Ok(())
    }
}
