//! Models to run, and what a request gives alone.

use crate::checkpoint::Checkpoint;
use crate::serving::{Batch, Event, Receiver, ServingRequest, Settings, Usage, Waiting};
use crate::synth::{Preset, synthesize};
use crate::{Finish, Model, Options};
use layerlet_core::backend::Backend;
use layerlet_core::plan::Capacity;
use layerlet_core::reference::Reference;
use std::sync::OnceLock;

/// Positions of a page in these tests: many pages in a short text.
pub const PAGE: usize = 4;
pub const POSITIONS: usize = 48;

/// A synthetic model with both kinds of state and a prediction head.
fn checkpoint() -> &'static (tempfile::TempDir, Checkpoint) {
    static MADE: OnceLock<(tempfile::TempDir, Checkpoint)> = OnceLock::new();
    MADE.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let to = folder.path().join("model");
        synthesize(Preset::Tiny, 1, &to, 1 << 30, &|_, _| {}).expect("written");
        let checkpoint = Checkpoint::open(&to).expect("opens");
        (folder, checkpoint)
    })
}

pub fn model_on(backend: &dyn Backend, state_slots: usize, kv_pages: usize) -> Model {
    let capacity = Capacity {
        state_slots,
        kv_pages,
        page_size: PAGE,
        max_positions: POSITIONS,
    };
    let options = Options {
        capacity,
        fused: true,
    };
    Model::load(&checkpoint().1, backend, &options, |_, _| {}).expect("loads")
}

pub fn model(state_slots: usize, kv_pages: usize) -> Model {
    model_on(&Reference, state_slots, kv_pages)
}

/// All that a caller hears.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heard {
    pub tokens: Vec<u32>,
    pub events: Vec<Event>,
    pub finish: Option<Finish>,
    pub digest: Option<[u8; 32]>,
    pub usage: Usage,
    pub failed: Option<String>,
}

impl Heard {
    pub fn listen(&mut self, receiver: &mut Receiver) {
        while let Some(event) = receiver.try_next() {
            match event {
                Event::Token { id, .. } => {
                    self.tokens.push(id);
                    self.events.push(event);
                }
                Event::PromptLogprobs(_) => self.events.push(event),
                Event::Done {
                    finish,
                    usage,
                    logits_sha256,
                } => {
                    (self.finish, self.digest) = (Some(finish), logits_sha256);
                    self.usage = usage;
                }
                Event::Failed(reason) => self.failed = Some(reason),
            }
        }
    }

    pub fn ended(&self) -> bool {
        self.finish.is_some() || self.failed.is_some()
    }

    /// What may not depend on company: everything but how the work was shared.
    pub fn answer(&self) -> (&[Event], Option<Finish>, Option<[u8; 32]>) {
        (&self.events, self.finish, self.digest)
    }
}

/// One request, nobody else, no cache, no drafts, all memory, the prompt at once.
pub fn alone(request: ServingRequest) -> Heard {
    let settings = Settings {
        max_sequences: 1,
        prefix_cache_pages: 0,
        ..Settings::default()
    };
    let batch = Batch::new(model(1, POSITIONS / PAGE), settings).expect("starts");
    run(batch, request).0
}

/// Runs one request to its end.
pub fn run(mut batch: Batch, request: ServingRequest) -> (Heard, Batch) {
    let mut waiting = Waiting::default();
    let mut receiver = batch.submit(request, &mut waiting).expect("taken");
    let mut heard = Heard::default();
    while !heard.ended() {
        batch.admit(&mut waiting);
        assert!(batch.step().expect("runs"), "nothing runs");
        heard.listen(&mut receiver);
    }
    (heard, batch)
}
