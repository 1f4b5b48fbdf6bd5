//! The generation loop of one sequence: the prompt in chunks, then token by token.
//!
//! Invariants: a request is refused before its first step or runs to its end; its tokens depend on
//! prompt, sampling parameters and seed alone, never on the chunks.

use crate::error::EngineError;
use crate::model::Model;
use layerlet_core::plan::{Head, SamplingParams, SamplingStep, SequenceStep, StepShape};
use std::ops::ControlFlow;

/// What to generate.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Token ids of the prompt, at least one.
    pub prompt: &'a [u32],
    /// Most tokens to generate.
    pub max_tokens: usize,
    /// How to draw them.
    pub sampling: SamplingParams,
    /// Ids that end the text; the ending id itself is not reported.
    pub stop_ids: &'a [u32],
    /// Rows of the prompt in one step. Changes no token.
    pub chunk: usize,
}

/// Why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// A stop id was drawn.
    Stop,
    /// The limit was reached.
    Length,
    /// The caller wanted no more.
    Cancelled,
}

/// A generated text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Generated {
    pub tokens: Vec<u32>,
    pub finish: Finish,
}

/// Generates one sequence; `on_token` hears every token as it is drawn.
pub fn generate(
    model: &mut Model,
    request: &Request<'_>,
    mut on_token: impl FnMut(u32) -> ControlFlow<()>,
) -> Result<Generated, EngineError> {
    check(model, request)?;
    let mut sequence = Sequence::new(model, request);
    let mut next = sequence.prefill(model)?;
    let mut tokens = Vec::new();
    loop {
        let finish = if request.stop_ids.contains(&next) {
            Some(Finish::Stop)
        } else {
            tokens.push(next);
            match on_token(next) {
                ControlFlow::Break(()) => Some(Finish::Cancelled),
                ControlFlow::Continue(()) => {
                    (tokens.len() == request.max_tokens).then_some(Finish::Length)
                }
            }
        };
        if let Some(finish) = finish {
            return Ok(Generated { tokens, finish });
        }
        next = sequence.decode(model, next)?;
    }
}

fn check(model: &Model, request: &Request<'_>) -> Result<(), EngineError> {
    request.sampling.validate()?;
    if request.prompt.is_empty() {
        return Err(EngineError::request(
            "the prompt's length",
            0,
            "at least one token",
        ));
    }
    for (what, value) in [("max_tokens", request.max_tokens), ("chunk", request.chunk)] {
        if value == 0 {
            return Err(EngineError::request(what, 0, "at least 1"));
        }
    }
    let vocab = model.layout().config().vocab;
    if let Some(at) = request.prompt.iter().position(|&id| id as usize >= vocab) {
        let found = format!("{} at index {at}", request.prompt[at]);
        let expected = format!("below the vocabulary's {vocab}");
        return Err(EngineError::request(
            "a token id of the prompt",
            found,
            expected,
        ));
    }
    let capacity = model.layout().capacity();
    let room = capacity
        .max_positions
        .min(capacity.kv_pages * capacity.page_size);
    // The last token drawn is not fed again.
    let needed = request.prompt.len().saturating_add(request.max_tokens - 1);
    match needed <= room {
        true => Ok(()),
        false => Err(EngineError::request(
            "prompt and generated tokens together",
            needed,
            format!("at most {room}, the positions this model was loaded with"),
        )),
    }
}

/// A sequence in slot 0, owning all pages.
struct Sequence<'a> {
    request: &'a Request<'a>,
    /// Prompt and generated tokens.
    text: Vec<u32>,
    /// How many of them have been fed.
    fed: usize,
    pages: Vec<u32>,
    head: Head,
}

impl<'a> Sequence<'a> {
    fn new(model: &Model, request: &'a Request<'a>) -> Self {
        let s = &request.sampling;
        let penalised =
            s.repetition_penalty != 1.0 || s.presence_penalty != 0.0 || s.frequency_penalty != 0.0;
        let head = match (penalised, s.temperature == 0.0) {
            (false, true) => Head::Argmax,
            (false, false) => Head::Sample { history: 1 },
            (true, _) => Head::Sample {
                history: request.prompt.len() + request.max_tokens,
            },
        };
        Sequence {
            request,
            text: request.prompt.to_vec(),
            fed: 0,
            pages: (0..model.layout().capacity().kv_pages as u32).collect(),
            head,
        }
    }

    /// Feeds the prompt; the token after it.
    fn prefill(&mut self, model: &mut Model) -> Result<u32, EngineError> {
        loop {
            let count = self.request.chunk.min(self.text.len() - self.fed);
            let token = self.feed(model, count)?;
            if self.fed == self.text.len() {
                return Ok(token);
            }
        }
    }

    fn decode(&mut self, model: &mut Model, token: u32) -> Result<u32, EngineError> {
        self.text.push(token);
        self.feed(model, 1)
    }

    /// Runs the next `count` rows; the token drawn after the last of them.
    fn feed(&mut self, model: &mut Model, count: usize) -> Result<u32, EngineError> {
        let shape = StepShape {
            tokens: count.next_power_of_two(),
            sequences: 1,
            outputs: 1,
            pages_per_sequence: self.pages.len(),
            head: self.head,
            verify: false,
            trace: false,
        };
        let history = match self.head {
            Head::Sample { history } if history > 1 => &self.text[..self.fed + count],
            _ => &[],
        };
        let generated = history.len().min(self.request.prompt.len());
        let step = SequenceStep {
            tokens: &self.text[self.fed..self.fed + count],
            start: self.fed as u32,
            pages: &self.pages,
            state_read: (self.fed > 0).then_some(0),
            state_writes: &[(count - 1, 0)],
            outputs: &[count - 1],
            sampling: Some(SamplingStep {
                params: self.request.sampling,
                history,
                generated,
            }),
        };
        let token = model.step(&shape, &[step])?.read("tokens", 1)?[0];
        self.fed += count;
        Ok(token)
    }
}
