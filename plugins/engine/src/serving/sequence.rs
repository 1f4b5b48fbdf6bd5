//! A request on its way: its text, how much of it is fed, and what it holds.

use super::pool::Pool;
use super::prefix::Key;
use super::receiver::Events;
use super::request::{Event, ServingRequest, TokenLogprobs, Usage};
use crate::generate::Finish;
use sha2::{Digest, Sha256};

pub(super) struct Sequence {
    pub request: ServingRequest,
    pub events: Events,
    /// Prompt and generated tokens.
    pub text: Vec<u32>,
    /// How many of them have been fed.
    pub fed: usize,
    /// Pages by logical order.
    pub pages: Vec<u32>,
    /// Slot of the state after `fed` tokens; none for a fresh sequence.
    pub slot: Option<u32>,
    /// Content keys of the pages that the text fills, from the first on.
    pub keys: Vec<Key>,
    /// How many of its pages are in the prefix cache.
    pub published: usize,
    /// Positions at which the cache wants the state, beside those that decoding reaches.
    pub wanted: Vec<usize>,
    /// The cached state that decoding left last: the next one replaces it.
    pub left: Option<Key>,
    /// Tokens that the prediction head expects next.
    pub drafts: Vec<u32>,
    /// Of each token of the prompt from the second on, so far.
    pub prompt_logprobs: Vec<TokenLogprobs>,
    pub digest: Option<Sha256>,
    pub usage: Usage,
    /// It has held state before: its use of the cache is counted once.
    pub admitted: bool,
    /// Set with the last token.
    pub finish: Option<Finish>,
    /// Why it cannot go on.
    pub failure: Option<String>,
}

impl Sequence {
    pub fn new(request: ServingRequest, events: Events) -> Sequence {
        Sequence {
            text: request.prompt.clone(),
            digest: request.digest.then(Sha256::new),
            usage: Usage {
                prompt: request.prompt.len(),
                ..Usage::default()
            },
            request,
            events,
            fed: 0,
            pages: Vec::new(),
            slot: None,
            keys: Vec::new(),
            published: 0,
            wanted: Vec::new(),
            left: None,
            drafts: Vec::new(),
            prompt_logprobs: Vec::new(),
            admitted: false,
            finish: None,
            failure: None,
        }
    }

    /// Tokens that are not fed yet; never 0.
    pub fn pending(&self) -> usize {
        self.text.len() - self.fed
    }

    /// It leaves with this step.
    pub fn finished(&self) -> bool {
        self.finish.is_some() || self.failure.is_some()
    }

    /// Tokens that may still be reported.
    pub fn left_to_generate(&self) -> usize {
        self.request.max_tokens - self.usage.generated
    }

    /// Log probabilities of the prompt that are still to be computed.
    pub fn owes_prompt_logprobs(&self) -> bool {
        self.request.prompt_logprobs.is_some()
            && self.prompt_logprobs.len() + 1 < self.request.prompt.len()
    }

    pub fn cancelled(&self) -> bool {
        self.events.is_closed()
    }

    /// Gives back all that it holds; it can start again from its text.
    pub fn release(&mut self, pages: &mut Pool, slots: &mut Pool) {
        self.pages.drain(..).for_each(|page| pages.release(page));
        self.slot
            .take()
            .into_iter()
            .for_each(|slot| slots.release(slot));
        self.fed = 0;
        self.published = 0;
        self.drafts.clear();
        self.wanted.clear();
    }

    /// Says something to the caller, who may have gone.
    pub fn say(&self, event: Event) {
        self.events.send(event).ok();
    }

    /// The last words of a request that came to its end.
    pub fn done(&mut self, finish: Finish) {
        let digest = self.digest.take().map(|hash| hash.finalize().into());
        self.say(Event::Done {
            finish,
            usage: self.usage,
            logits_sha256: digest,
        });
    }
}
