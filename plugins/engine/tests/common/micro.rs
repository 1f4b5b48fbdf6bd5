//! A checkpoint of a few kilobytes with every kind of parameter.

use super::{Draft, Tensor};
use layerlet_engine::checkpoint::{Config, parameters};
use safetensors::Dtype;
use serde_json::{Value, json};

/// Two layers, one of each kind, two experts; bf16 in transformers' layout.
pub fn micro() -> Draft {
    let mut config: Value = Draft::read("bf16").config;
    let sizes = json!({
        "hidden_size": 8, "vocab_size": 16, "num_hidden_layers": 2,
        "layer_types": ["linear_attention", "full_attention"], "full_attention_interval": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
        "linear_num_key_heads": 1, "linear_num_value_heads": 2,
        "linear_key_head_dim": 4, "linear_value_head_dim": 4,
        "num_experts": 2, "num_experts_per_tok": 1,
        "moe_intermediate_size": 4, "shared_expert_intermediate_size": 4,
    });
    for (field, value) in sizes.as_object().expect("an object") {
        config[field] = value.clone();
    }
    let parsed = Config::parse(config.to_string().as_bytes()).expect("a valid config");
    let mut draft = Draft {
        config,
        tensors: Vec::new(),
    };
    let mut value = 0u32;
    let all: Vec<_> = parameters(&parsed.model).collect();
    for part in all
        .iter()
        .flat_map(|p| p.whole().map_or_else(|| p.split().collect(), |w| vec![w]))
    {
        let count: usize = part.shape.iter().product();
        let mut data = Vec::new();
        for _ in 0..count {
            // Any finite values that differ from each other.
            value = value.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f);
            data.extend(half::bf16::from_f32((value >> 16) as f32 / 65536.0 - 0.5).to_le_bytes());
        }
        let prefix = match part.tensor.starts_with("lm_head") {
            true => "",
            false => "model.",
        };
        draft.add(
            &format!("{prefix}{}", part.tensor),
            Dtype::BF16,
            &part.shape,
            data,
        );
    }
    draft
}

/// A prediction head as transformers saves it, with values of its own.
pub fn with_mtp() -> Draft {
    let mut draft = micro();
    let hidden = 8;
    let mut added: Vec<Tensor> = Vec::new();
    for tensor in &draft.tensors {
        if let Some(rest) = tensor.name.strip_prefix("model.layers.1.") {
            let mut tensor = tensor.clone();
            tensor.name = format!("mtp.layers.0.{rest}");
            tensor.data.rotate_left(2);
            added.push(tensor);
        }
    }
    draft.tensors.extend(added);
    draft.add(
        "mtp.fc.weight",
        Dtype::BF16,
        &[hidden, 2 * hidden],
        vec![0x3d; 4 * hidden * hidden],
    );
    for (i, name) in ["norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"]
        .iter()
        .enumerate()
    {
        let data = vec![0x3a + i as u8; 2 * hidden];
        draft.add(&format!("mtp.{name}.weight"), Dtype::BF16, &[hidden], data);
    }
    draft
}
