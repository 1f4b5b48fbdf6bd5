//! From generated text to what a client sees: stop strings, reasoning and tool calls, told apart as the text comes.
//!
//! Invariant: what comes out, joined, does not depend on how the text was cut into chunks. Only what may still turn out
//! to be a marker is held back.

mod partial;
mod reasoning;
mod stop;
mod tool_calls;

pub use reasoning::{Reasoning, Said};
pub use stop::{Scanned, StopStrings};
pub use tool_calls::{Piece, ToolCall, ToolCalls};
