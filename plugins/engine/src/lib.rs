//! Checkpoints, quantisation, synthetic models, tokenizer, chat template and the generation loop.
//!
//! Data goes one way: checkpoint → [`Model`] (weights in a backend's memory) → plans → tokens.
//! Nothing here computes on activations; every byte comes from a backend.

pub mod bench;
mod chat;
pub mod checkpoint;
mod error;
mod generate;
mod model;
mod output;
pub mod quantize;
pub mod serving;
pub mod shadow;
pub mod synth;
pub mod text;
mod tokenizer;
mod trace;

pub use chat::{ChatTemplate, Conversation, Message};
pub use error::EngineError;
pub use generate::{Finish, Generated, Request, generate};
pub use model::{Model, Options, PAGE_SIZE, Step};
pub use output::{OutputError, Progress};
pub use tokenizer::{TextStream, Tokenizer};
pub use trace::trace;
