//! What a caller asks, and what it hears.

use crate::error::EngineError;
use crate::generate::Finish;
use layerlet_core::plan::ModelLayout;

pub use layerlet_core::plan::SamplingParams as Sampling;

/// Changes the logits of a request before a token is drawn.
pub trait LogitsProcessor: Send {
    /// Hears what was generated so far. Called once for every token, in order. The logits come as bf16 widened to f32, and
    /// go back to bf16 before the draw.
    fn process(&mut self, generated: &[u32], logits: &mut [f32]) -> Result<(), String>;
}

/// What to generate.
pub struct ServingRequest {
    /// Token ids of the prompt, at least one.
    pub prompt: Vec<u32>,
    /// Most tokens to generate.
    pub max_tokens: usize,
    /// How to draw them.
    pub sampling: Sampling,
    /// Ids that end the text; the ending id itself is not reported.
    pub stop_ids: Vec<u32>,
    /// Who asks: room is shared evenly between clients.
    pub client: String,
    /// Report each token's log probability, and those of so many likeliest ones.
    pub logprobs: Option<usize>,
    /// The same for the prompt's tokens from the second on.
    pub prompt_logprobs: Option<usize>,
    /// Report a hash over the logits that the tokens were drawn from.
    pub digest: bool,
    /// Changes logits before the draw.
    pub processor: Option<Box<dyn LogitsProcessor>>,
}

impl ServingRequest {
    /// Whether it needs logits on the host.
    pub(super) fn needs_logits(&self) -> bool {
        self.logprobs.is_some()
            || self.prompt_logprobs.is_some()
            || self.digest
            || self.processor.is_some()
    }

    pub(super) fn penalised(&self) -> bool {
        let s = &self.sampling;
        s.repetition_penalty != 1.0 || s.presence_penalty != 0.0 || s.frequency_penalty != 0.0
    }

    /// Refuses what this model cannot do.
    pub(super) fn check(&self, layout: &ModelLayout) -> Result<(), EngineError> {
        self.sampling.validate()?;
        let at_least_one = [
            ("the prompt's length", self.prompt.len()),
            ("max_tokens", self.max_tokens),
        ];
        for (what, value) in at_least_one {
            if value == 0 {
                return Err(EngineError::request(what, 0, "at least 1"));
            }
        }
        let vocab = layout.config().vocab;
        if let Some(at) = self.prompt.iter().position(|&id| id as usize >= vocab) {
            let found = format!("{} at index {at}", self.prompt[at]);
            let expected = format!("below the vocabulary's {vocab}");
            let what = "a token id of the prompt";
            return Err(EngineError::request(what, found, expected));
        }
        let capacity = layout.capacity();
        let room = capacity
            .max_positions
            .min(capacity.kv_pages * capacity.page_size);
        // The last token drawn is not fed again.
        let needed = self.prompt.len().saturating_add(self.max_tokens - 1);
        match needed <= room {
            true => Ok(()),
            false => Err(EngineError::request(
                "prompt and generated tokens together",
                needed,
                format!("at most {room}, the positions this model was loaded with"),
            )),
        }
    }
}

/// A token's log probability under the model's own logits, and the likeliest tokens with theirs.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct TokenLogprobs {
    pub logprob: f32,
    /// By rank: logit descending, then id ascending.
    pub top: Vec<(u32, f32)>,
}

/// What a request used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Of these, found in the prefix cache.
    pub cached: usize,
    /// Tokens reported.
    pub generated: usize,
    /// Steps in which tokens were drawn: fewer than tokens where drafts were accepted.
    pub steps: usize,
}

/// What happens to a request, in order; `Done` or `Failed` is the last.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Event {
    /// Before the first token: of each token of the prompt from the second on.
    PromptLogprobs(Vec<TokenLogprobs>),
    Token {
        id: u32,
        logprobs: Option<TokenLogprobs>,
    },
    Done {
        finish: Finish,
        usage: Usage,
        /// Over the bf16 logits of every token drawn, the ending one included, in order, as little-endian bytes.
        logits_sha256: Option<[u8; 32]>,
    },
    Failed(String),
}
