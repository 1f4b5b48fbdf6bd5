//! One file per operation, each readable from top to bottom: formula, shapes, dtype at every step,
//! errors, source. The functions on slices are the reference; the structs are the same operations
//! as launches over buffers.
//!
//! Shapes: `T` rows (tokens) of a step, `S` sequences, `R` rows whose logits are wanted, `P = T * k`
//! token-expert pairs. A step may have fewer rows than its bucket: `row_seq[t] == NONE` marks an
//! inert row. [`Embedding`] makes inert rows zero, stateful operations skip them, and every other
//! operation treats them as the zero rows they are.

mod all_gather_columns;
mod all_reduce;
mod argmax;
mod causal_conv1d;
mod concat_columns;
mod delta_gates;
mod dequantize;
mod embedding;
mod exchange_slot_rows;
mod expert_prologue;
mod gated_delta_rule;
mod gated_rms_norm;
mod gather_rows;
mod grouped_linear;
mod kv_append;
mod linear;
mod lm_head;
mod local_experts;
mod page_table;
mod paged_attention;
mod quantize_rows;
mod rms_norm;
mod rope;
mod router_top_k;
mod sample;
mod shared_expert;
mod silu_mul;
mod state_slots;
mod verify_drafts;
mod weighted_gather;

pub use all_gather_columns::*;
pub use all_reduce::*;
pub use argmax::*;
pub use causal_conv1d::*;
pub use concat_columns::*;
pub use delta_gates::*;
pub use dequantize::*;
pub use embedding::*;
pub use exchange_slot_rows::*;
pub use expert_prologue::*;
pub use gated_delta_rule::*;
pub use gated_rms_norm::*;
pub use gather_rows::*;
pub use grouped_linear::*;
pub use kv_append::*;
pub use linear::*;
pub use lm_head::*;
pub use local_experts::*;
pub use page_table::*;
pub use paged_attention::*;
pub use quantize_rows::*;
pub use rms_norm::*;
pub use rope::*;
pub use router_top_k::*;
pub use sample::*;
pub use shared_expert::*;
pub use silu_mul::*;
pub use state_slots::*;
pub use verify_drafts::*;
pub use weighted_gather::*;
