//! The handle: one thread owns the model, any number of callers submit.

use super::batch::Batch;
use super::receiver::{Receiver, channel};
use super::request::ServingRequest;
use super::sequence::Sequence;
use super::settings::Settings;
use super::stats::Stats;
use super::waiting::Waiting;
use crate::error::EngineError;
use crate::model::Model;
use layerlet_core::plan::ModelLayout;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use thiserror::Error;

/// Why a request was not taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SubmitError {
    /// The queue is full; later there will be room.
    #[error("{0} requests wait already")]
    Busy(usize),
    /// No new requests are taken.
    #[error("no new requests are taken: the engine is shutting down")]
    Draining,
    /// The request can never run.
    #[error("{0}")]
    Invalid(String),
    /// The engine has ended.
    #[error("the engine has failed: {0}")]
    Failed(String),
}

/// A running engine. The last handle that goes away ends it.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    layout: ModelLayout,
    queue: usize,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    inbox: Mutex<Inbox>,
    wake: Condvar,
}

#[derive(Default)]
struct Inbox {
    waiting: Waiting,
    stats: Stats,
    draining: bool,
    stop: bool,
    /// Why nothing runs any more.
    ended: Option<String>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// Takes a model over and starts.
    pub fn start(model: Model, settings: Settings) -> Result<Engine, EngineError> {
        let layout = model.layout().clone();
        let queue = settings.queue;
        let batch = Batch::new(model, settings)?;
        let shared = Arc::new(Shared {
            inbox: Mutex::default(),
            wake: Condvar::new(),
        });
        shared.lock().stats = batch.stats(&Waiting::default());
        let seen = shared.clone();
        let thread = std::thread::Builder::new().name("layerlet-engine".into());
        let thread = thread.spawn(move || {
            let end = End(seen.clone());
            serve(batch, &seen);
            drop(end);
        });
        let thread =
            thread.map_err(|e| EngineError::request("the engine's thread", e, "a thread"))?;
        Ok(Engine {
            inner: Arc::new(Inner {
                shared,
                layout,
                queue,
                thread: Mutex::new(Some(thread)),
            }),
        })
    }

    /// Lets a request wait for its turn.
    pub fn submit(&self, request: ServingRequest) -> Result<Receiver, SubmitError> {
        let checked = request.check(&self.inner.layout);
        checked.map_err(|e| SubmitError::Invalid(e.to_string()))?;
        let mut inbox = self.inner.shared.lock();
        if let Some(reason) = &inbox.ended {
            return Err(SubmitError::Failed(reason.clone()));
        }
        if inbox.draining || inbox.stop {
            return Err(SubmitError::Draining);
        }
        if inbox.waiting.len() >= self.inner.queue {
            let gone = inbox.waiting.sweep();
            inbox.stats.cancelled += gone as u64;
        }
        if inbox.waiting.len() >= self.inner.queue {
            return Err(SubmitError::Busy(self.inner.queue));
        }
        let (events, receiver) = channel();
        inbox.waiting.push(Sequence::new(request, events));
        self.inner.shared.wake.notify_one();
        Ok(receiver)
    }

    /// What it did, and holds now.
    pub fn stats(&self) -> Stats {
        let inbox = self.inner.shared.lock();
        let mut stats = inbox.stats.clone();
        stats.waiting = stats.waiting.max(inbox.waiting.len());
        stats
    }

    /// Takes no new requests; those that it has go on to their end.
    pub fn drain(&self) {
        self.inner.shared.lock().draining = true;
    }

    /// Whether it takes requests.
    pub fn ready(&self) -> bool {
        let inbox = self.inner.shared.lock();
        !inbox.draining && !inbox.stop && inbox.ended.is_none()
    }

    /// Why it has ended by itself, if it has.
    pub fn failure(&self) -> Option<String> {
        self.inner.shared.lock().ended.clone()
    }

    /// Ends everything now and waits for the thread.
    pub fn stop(&self) {
        self.inner.stop();
    }
}

impl Inner {
    fn stop(&self) {
        self.shared.lock().stop = true;
        self.shared.wake.notify_all();
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            // A panic was reported where it happened, and has ended the engine.
            thread.join().ok();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop();
    }
}

const STOPPED: &str = "the engine was stopped";

fn serve(mut batch: Batch, shared: &Shared) {
    loop {
        let mut inbox = shared.lock();
        while !inbox.stop && batch.idle() && inbox.waiting.is_empty() {
            inbox = shared
                .wake
                .wait(inbox)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if inbox.stop {
            return end(&mut batch, &mut inbox, STOPPED);
        }
        batch.admit(&mut inbox.waiting);
        inbox.stats = batch.stats(&inbox.waiting);
        drop(inbox);
        if let Err(error) = batch.step() {
            return end(&mut batch, &mut shared.lock(), &error.to_string());
        }
        // Counts are right by the time that an answer's last event is heard and the books are asked.
        let mut inbox = shared.lock();
        batch.admit(&mut inbox.waiting);
        inbox.stats = batch.stats(&inbox.waiting);
    }
}

fn end(batch: &mut Batch, inbox: &mut Inbox, reason: &str) {
    batch.fail(&mut inbox.waiting, reason);
    inbox.stats = batch.stats(&inbox.waiting);
    inbox.ended = Some(reason.to_string());
}

/// Says that the engine has ended, also when its thread panics.
struct End(Arc<Shared>);

impl Drop for End {
    fn drop(&mut self) {
        let mut inbox = self.0.lock();
        inbox
            .ended
            .get_or_insert_with(|| "its thread panicked".into());
        // Their callers hear the end of the channel.
        inbox.waiting.drain();
    }
}
