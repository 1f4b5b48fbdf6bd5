//! What the model is: sizes and kinds, checked once, so that later code need not ask again.

use alloc::{string::String, vec::Vec};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The token mixer of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mixer {
    /// Gated delta net.
    LinearAttention,
    /// Softmax attention with an output gate.
    FullAttention,
}

/// Sizes of the softmax attention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct AttentionConfig {
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Leading dims of a head that are rotated; the rest pass through.
    pub rotary_dim: usize,
    pub rope_theta: f64,
}

/// Sizes of the gated delta net.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct DeltaNetConfig {
    pub key_heads: usize,
    pub value_heads: usize,
    pub key_dim: usize,
    pub value_dim: usize,
    pub conv_width: usize,
}

impl DeltaNetConfig {
    /// Channels of the convolution: all q, all k, all v.
    pub fn channels(&self) -> usize {
        2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
    }
}

/// Sizes of the mixture of experts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct MoeConfig {
    pub experts: usize,
    pub top_k: usize,
    pub intermediate: usize,
    pub shared_intermediate: usize,
}

/// A Qwen3.6 (qwen3_5_moe) text model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct ModelConfig {
    pub hidden: usize,
    pub vocab: usize,
    pub layers: Vec<Mixer>,
    pub attention: AttentionConfig,
    pub delta_net: DeltaNetConfig,
    pub moe: MoeConfig,
    pub rms_norm_eps: f32,
    pub max_position: usize,
    /// Multi-token-prediction layers; this family has 0 or 1.
    pub mtp_layers: usize,
    /// The head reads the embedding table.
    pub tied_embeddings: bool,
}

/// A config that describes no model this project can run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("config: {field} is {found}, expected {expected}")]
#[allow(missing_docs)]
pub struct ConfigError {
    pub field: &'static str,
    pub found: String,
    pub expected: &'static str,
}

/// The longest inner dimension for which an i32 holds every sum of s8 products (127 * 128 * K < 2^31).
pub const MAX_W8A8_K: usize = 131_072;

/// The last position for which RoPE angles are proved.
pub const MAX_POSITION: usize = 262_144;

impl ModelConfig {
    /// Refuses what no launch could run. Everything behind this check may divide by these fields.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let (a, d, m) = (&self.attention, &self.delta_net, &self.moe);
        let positive = [
            ("hidden_size", self.hidden),
            ("vocab_size", self.vocab),
            ("num_hidden_layers", self.layers.len()),
            ("num_attention_heads", a.heads),
            ("num_key_value_heads", a.kv_heads),
            ("head_dim", a.head_dim),
            ("linear_num_key_heads", d.key_heads),
            ("linear_num_value_heads", d.value_heads),
            ("linear_key_head_dim", d.key_dim),
            ("linear_value_head_dim", d.value_dim),
            ("num_experts", m.experts),
            ("num_experts_per_tok", m.top_k),
            ("moe_intermediate_size", m.intermediate),
            ("shared_expert_intermediate_size", m.shared_intermediate),
            ("max_position_embeddings", self.max_position),
        ];
        for (field, value) in positive {
            ensure(
                (1..=1 << 24).contains(&value),
                field,
                value,
                "1 to 16,777,216",
            )?;
        }
        ensure(
            a.heads.is_multiple_of(a.kv_heads),
            "num_attention_heads",
            a.heads,
            "a multiple of num_key_value_heads",
        )?;
        ensure(
            d.value_heads.is_multiple_of(d.key_heads),
            "linear_num_value_heads",
            d.value_heads,
            "a multiple of linear_num_key_heads",
        )?;
        ensure(
            a.rotary_dim >= 2 && a.rotary_dim.is_multiple_of(2) && a.rotary_dim <= a.head_dim,
            "partial_rotary_factor",
            a.rotary_dim,
            "an even number of rotated dims, 2 to head_dim",
        )?;
        ensure(
            (a.rope_theta as f32).is_finite() && a.rope_theta > 1.0,
            "rope_theta",
            a.rope_theta,
            "a number above 1 that f32 can hold",
        )?;
        ensure(
            m.top_k <= m.experts,
            "num_experts_per_tok",
            m.top_k,
            "at most num_experts",
        )?;
        ensure(
            (2..=8).contains(&d.conv_width),
            "linear_conv_kernel_dim",
            d.conv_width,
            "2 to 8",
        )?;
        ensure(
            self.rms_norm_eps > 0.0 && self.rms_norm_eps < 1.0,
            "rms_norm_eps",
            self.rms_norm_eps,
            "between 0 and 1",
        )?;
        ensure(
            self.max_position <= MAX_POSITION,
            "max_position_embeddings",
            self.max_position,
            "at most 262,144",
        )?;
        ensure(
            self.mtp_layers <= 1,
            "mtp_num_hidden_layers",
            self.mtp_layers,
            "0 or 1",
        )?;
        let widest = [
            self.hidden,
            a.heads * a.head_dim,
            d.value_heads * d.value_dim,
            m.intermediate,
            m.shared_intermediate,
        ];
        let k = widest.into_iter().max().unwrap_or(0);
        ensure(
            k <= MAX_W8A8_K,
            "the widest linear input",
            k,
            "at most 131,072 (i32 sums of s8 products)",
        )
    }
}

fn ensure(
    holds: bool,
    field: &'static str,
    found: impl alloc::string::ToString,
    expected: &'static str,
) -> Result<(), ConfigError> {
    match holds {
        true => Ok(()),
        false => Err(ConfigError {
            field,
            found: found.to_string(),
            expected,
        }),
    }
}
