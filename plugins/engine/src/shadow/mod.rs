//! Shadow verification: a share of a backend's launches is run again by the reference, and the bytes
//! are compared.
//!
//! A [`Shadow`] is a backend around another one. Of a launch that it draws, it copies what the launch
//! reads and what it has written, and hands both to a thread that runs the reference in its own time.
//! Invariants: the bytes of the backend inside are never changed, unless the policy is to replace a
//! kernel that was found wrong; the copies that wait never exceed the memory that was granted, and a
//! launch that does not fit is counted, not waited for.

mod check;
mod instance;
mod share;

pub use share::{Share, ShareError};

use check::{Checker, Sample};
use instance::ShadowInstance;
use layerlet_core::backend::{Backend, BackendError, DeviceIdentity, Instance};
use layerlet_core::buffer::BufferTable;
use layerlet_core::launch::Layerlet;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

/// What happens after a mismatch. Tokens that came before it was found have been given out already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The alarm, nothing else.
    Log,
    /// The kernel is not used any more: the reference runs its launches. Right, and slow.
    Fallback,
    /// Nothing runs any more.
    Stop,
}

/// How a backend is watched.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Part of the launches that is checked.
    pub share: Share,
    /// What happens after a mismatch.
    pub policy: Policy,
    /// Where fixtures of mismatches go; made when the first one is written.
    pub folder: PathBuf,
    /// Bytes of copies that may wait for the reference.
    pub memory: usize,
    /// Draws the launches.
    pub seed: u64,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Launches that ran on the backend.
    pub launches: u64,
    /// Launches that were drawn.
    pub drawn: u64,
    /// Launches that the reference has run again.
    pub checked: u64,
    /// Launches whose bytes were not the reference's.
    pub mismatches: u64,
    /// Drawn launches that were let go because too many waited.
    pub dropped: u64,
    /// Drawn launches that alone are larger than the memory granted.
    pub too_large: u64,
    /// Launches that the reference ran in place of a kernel found wrong.
    pub replaced: u64,
}

/// A kernel was found wrong.
#[derive(Clone, Debug)]
pub struct Alarm {
    /// Operation or layerlet.
    pub kernel: &'static str,
    /// Buffers that differ, or what the reference had against the inputs.
    pub problem: String,
    /// The fixture that shows it, or why there is none.
    pub fixture: Result<PathBuf, String>,
}

impl fmt::Display for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shadow: {} {}", self.kernel, self.problem)?;
        match &self.fixture {
            Ok(path) => write!(
                f,
                "; cargo xtask golden --fixture {} shows it",
                path.display()
            ),
            Err(why) => write!(f, "; no fixture: {why}"),
        }
    }
}

/// What the instances, the checking thread and the handles share.
#[derive(Default)]
struct Shared {
    launches: AtomicU64,
    drawn: AtomicU64,
    checked: AtomicU64,
    mismatches: AtomicU64,
    dropped: AtomicU64,
    too_large: AtomicU64,
    replaced: AtomicU64,
    /// Whether `verdict` says anything: looked at before every launch.
    found: AtomicBool,
    verdict: Mutex<Verdict>,
    /// Bytes of copies that wait.
    waiting: Mutex<usize>,
    fewer: Condvar,
}

/// What was found so far.
#[derive(Default)]
struct Verdict {
    wrong: BTreeSet<&'static str>,
    stopped: Option<String>,
}

/// The lock, whoever panicked while holding it: what is inside is whole at every moment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl Shared {
    fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes room for a copy, or counts why there is none.
    fn reserve(self: &Arc<Self>, bytes: usize, most: usize) -> Option<Reservation> {
        if bytes > most {
            Shared::add(&self.too_large);
            return None;
        }
        let mut waiting = lock(&self.waiting);
        if bytes > most - *waiting {
            Shared::add(&self.dropped);
            return None;
        }
        *waiting += bytes;
        let shared = self.clone();
        Some(Reservation { shared, bytes })
    }
}

/// Room for the copy of one launch, given back when the copy is gone, however it goes.
struct Reservation {
    shared: Arc<Shared>,
    bytes: usize,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        *lock(&self.shared.waiting) -= self.bytes;
        self.shared.fewer.notify_all();
    }
}

/// Counts of a [`Shadow`], for as long as anybody wants them.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

impl Handle {
    /// The counts so far.
    pub fn stats(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let shared = &self.0;
        Stats {
            launches: read(&shared.launches),
            drawn: read(&shared.drawn),
            checked: read(&shared.checked),
            mismatches: read(&shared.mismatches),
            dropped: read(&shared.dropped),
            too_large: read(&shared.too_large),
            replaced: read(&shared.replaced),
        }
    }

    /// Waits until every copy has been checked.
    pub fn wait(&self) -> Stats {
        let mut waiting = lock(&self.0.waiting);
        while *waiting > 0 {
            waiting = (self.0.fewer.wait(waiting)).unwrap_or_else(|e| e.into_inner());
        }
        drop(waiting);
        self.stats()
    }
}

/// A backend that is watched.
pub struct Shadow {
    inner: Box<dyn Backend>,
    settings: Settings,
    shared: Arc<Shared>,
    samples: Sender<Sample>,
}

impl Shadow {
    /// Watches `inner`; `alarm` hears of every mismatch, from the checking thread.
    pub fn new(
        inner: Box<dyn Backend>,
        settings: Settings,
        alarm: impl Fn(&Alarm) + Send + 'static,
    ) -> Shadow {
        let shared = Arc::new(Shared::default());
        let (samples, incoming) = channel();
        let checker = Checker::new(&settings, shared.clone(), Box::new(alarm));
        thread::spawn(move || checker.run(&incoming));
        Shadow {
            inner,
            settings,
            shared,
            samples,
        }
    }

    /// Its counts.
    pub fn handle(&self) -> Handle {
        Handle(self.shared.clone())
    }
}

impl Backend for Shadow {
    fn identity(&self) -> DeviceIdentity {
        self.inner.identity()
    }

    fn layerlets(&self) -> &[Layerlet] {
        self.inner.layerlets()
    }

    fn open(&self, model: &BufferTable) -> Result<Box<dyn Instance>, BackendError> {
        Ok(Box::new(ShadowInstance::new(
            self.inner.open(model)?,
            self.inner.identity().backend,
            self.settings.clone(),
            self.shared.clone(),
            self.samples.clone(),
        )))
    }
}
