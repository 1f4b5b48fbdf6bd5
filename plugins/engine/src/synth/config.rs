//! `config.json` of a synthetic checkpoint, in the words of transformers.

use crate::output::quantization_config;
use layerlet_core::config::{Mixer, ModelConfig};
use serde_json::{Map, Value, json};

/// The config that describes a model. No token ends a text, so that every generation has the length
/// that was asked for.
pub fn config(model: &ModelConfig) -> Map<String, Value> {
    let fields = [
        (
            "architectures",
            json!(["Qwen3_5MoeForConditionalGeneration"]),
        ),
        ("model_type", json!("qwen3_5_moe")),
        ("tie_word_embeddings", json!(model.tied_embeddings)),
        ("text_config", text_config(model)),
        ("quantization_config", quantization_config(model, false)),
    ];
    fields
        .map(|(name, value)| (name.to_string(), value))
        .into_iter()
        .collect()
}

fn text_config(model: &ModelConfig) -> Value {
    let (a, d, m) = (&model.attention, &model.delta_net, &model.moe);
    json!({
        "architectures": ["Qwen3_5MoeForCausalLM"],
        "model_type": "qwen3_5_moe_text",
        "dtype": "bfloat16",
        "hidden_act": "silu",
        "hidden_size": model.hidden,
        "vocab_size": model.vocab,
        "num_hidden_layers": model.layers.len(),
        "layer_types": model.layers.iter().map(mixer).collect::<Vec<_>>(),
        "max_position_embeddings": model.max_position,
        "rms_norm_eps": decimal(model.rms_norm_eps),
        "tie_word_embeddings": model.tied_embeddings,
        "bos_token_id": null,
        "eos_token_id": null,
        "pad_token_id": null,
        "attention_bias": false,
        "attn_output_gate": true,
        "num_attention_heads": a.heads,
        "num_key_value_heads": a.kv_heads,
        "head_dim": a.head_dim,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": a.rope_theta,
            "partial_rotary_factor": a.rotary_dim as f64 / a.head_dim as f64,
            "mrope_interleaved": true,
            "mrope_section": mrope_section(a.rotary_dim / 2),
        },
        "linear_conv_kernel_dim": d.conv_width,
        "linear_key_head_dim": d.key_dim,
        "linear_num_key_heads": d.key_heads,
        "linear_num_value_heads": d.value_heads,
        "linear_value_head_dim": d.value_dim,
        "mamba_ssm_dtype": "float32",
        "num_experts": m.experts,
        "num_experts_per_tok": m.top_k,
        "moe_intermediate_size": m.intermediate,
        "shared_expert_intermediate_size": m.shared_intermediate,
        "mtp_num_hidden_layers": model.mtp_layers,
    })
}

fn mixer(mixer: &Mixer) -> &'static str {
    match mixer {
        Mixer::LinearAttention => "linear_attention",
        Mixer::FullAttention => "full_attention",
    }
}

/// Rotated pairs for time, height and width, which text gives the same position: thirds, the first
/// ones longer.
fn mrope_section(pairs: usize) -> [usize; 3] {
    [pairs.div_ceil(3), (pairs + 1) / 3, pairs / 3]
}

/// The shortest decimal that reads as this f32.
fn decimal(value: f32) -> f64 {
    value
        .to_string()
        .parse()
        .expect("what Rust prints of a number it reads")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Config;
    use crate::synth::Preset;

    #[test]
    fn the_loader_reads_the_model_back() {
        for preset in Preset::ALL {
            let model = preset.config();
            let text = Value::Object(config(&model)).to_string();
            let read = Config::parse(text.as_bytes()).expect("parses");
            assert_eq!(read.model, model, "{}", preset.name());
            assert!(read.eos.is_empty());
            assert!(read.quantization.is_some());
        }
    }

    #[test]
    fn sections_are_those_of_the_released_models() {
        assert_eq!(mrope_section(32), [11, 11, 10]);
        assert_eq!(mrope_section(4), [2, 1, 1]);
    }
}
