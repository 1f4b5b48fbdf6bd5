//! `config.json` of the output: the input's, in the shape of the released checkpoints, with what vLLM
//! must know to compute W8A8.
//!
//! Invariant: the exclude list names exactly the linears that were copied.

use super::{QuantizeError, output_error};
use crate::checkpoint::Checkpoint;
use serde_json::{Map, Value, json};
use std::path::Path;

pub fn write(to: &Path, checkpoint: &Checkpoint) -> Result<(), QuantizeError> {
    let mut config = nested(checkpoint.config.json.clone());
    config.insert("quantization_config".into(), quantization(checkpoint));
    let path = to.join("config.json");
    let text = serde_json::to_string_pretty(&config).expect("a JSON value is JSON");
    std::fs::write(&path, text).map_err(|e| output_error(&path, e))
}

/// Text tensors are written below `model.language_model.`, so the config is the outer one too.
fn nested(json: Map<String, Value>) -> Map<String, Value> {
    if json.contains_key("text_config") {
        return json;
    }
    let mut outer = Map::new();
    let architectures = json!(["Qwen3_5MoeForConditionalGeneration"]);
    outer.insert("architectures".into(), architectures);
    outer.insert("model_type".into(), "qwen3_5_moe".into());
    let tied = json.get("tie_word_embeddings").cloned();
    outer.insert("tie_word_embeddings".into(), tied.unwrap_or(false.into()));
    outer.insert("text_config".into(), Value::Object(json));
    outer
}

fn quantization(checkpoint: &Checkpoint) -> Value {
    json!({
        "quant_method": "quark",
        "global_quant_config": {
            "weight": tensor(0, false),
            "input_tensors": tensor(1, true),
            "output_tensors": null,
            "bias": null,
        },
        "layer_type_quant_config": {},
        "layer_quant_config": {},
        "kv_cache_quant_config": {},
        "exclude": exclude(checkpoint),
        "export": {
            "kv_cache_group": [],
            "pack_method": "order",
            "weight_format": "real_quantized",
            "weight_merge_groups": null,
            "min_kv_scale": 0.0,
        },
    })
}

fn tensor(axis: u32, dynamic: bool) -> Value {
    json!({
        "dtype": "int8",
        "qscheme": "per_channel",
        "ch_axis": axis,
        "is_dynamic": dynamic,
        "symmetric": true,
        "group_size": null,
        "observer_cls": "PerChannelMinMaxObserver",
        "round_method": "half_even",
        "scale_type": "float",
    })
}

fn exclude(checkpoint: &Checkpoint) -> Vec<String> {
    let mut exclude = vec!["lm_head".to_string()];
    for layer in 0..checkpoint.config.model.layers.len() {
        let mlp = format!("model.language_model.layers.{layer}.mlp");
        exclude.extend(["gate", "shared_expert_gate"].map(|name| format!("{mlp}.{name}")));
    }
    if checkpoint.config.model.mtp_layers > 0 {
        exclude.push(r"re:mtp\..*".into());
    }
    if !checkpoint.vision().is_empty() {
        exclude.push(r"re:(model\.)?visual\..*".into());
    }
    exclude
}
