//! Many requests at once: continuous batching whose decisions change no token.
//!
//! ```text
//! submit ─► Waiting ─► Batch (admit, plan, run, commit) ─► events ─► Receiver
//!           bounded,   pages and slots by reference count,
//!           fair       prefix cache, drafts
//! ```
//!
//! [`Engine`] is the handle that threads and servers hold; one thread owns the model and drives a [`Batch`], which is
//! deterministic and knows nothing of threads.
//!
//! Invariants: a request's events depend on the request alone, never on its company, on chunks, preemption, cached
//! prefixes or drafts; a page or slot is held by those who count as its holders and by nobody else.

mod batch;
mod commit;
mod draft;
mod draw;
mod engine;
mod pool;
mod prefix;
mod receiver;
mod request;
mod reserve;
mod run;
mod sequence;
mod settings;
#[cfg(test)]
mod simulator;
mod stats;
mod waiting;

pub use batch::Batch;
pub use engine::{Engine, SubmitError};
pub use receiver::Receiver;
pub use request::{Event, LogitsProcessor, Sampling, ServingRequest, TokenLogprobs, Usage};
pub use settings::{Settings, Spec};
pub use stats::Stats;
pub use waiting::Waiting;
