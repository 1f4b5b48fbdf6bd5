//! The Quark W8A8 INT8 layout: which linears are int8, what tensors are called, and what vLLM must be
//! told to compute W8A8.
//!
//! Invariant: the exclude list names exactly the linears that are not int8.

use crate::checkpoint::{Kept, Parameter};
use layerlet_core::config::ModelConfig;
use serde_json::{Value, json};

/// Whether a parameter is int8: the linears of the decoder layers except the router and the shared
/// expert's gate.
pub fn is_quantized(parameter: &Parameter) -> bool {
    let module = &parameter.module;
    parameter.kept == Kept::Linear
        && module.starts_with("layers.")
        && !module.ends_with(".mlp.gate")
        && !module.ends_with(".mlp.shared_expert_gate")
}

/// Name in a file of a tensor of the text model, whose canonical name has no prefix.
pub fn file_name(tensor: &str) -> String {
    match ["lm_head.", "mtp."].iter().any(|t| tensor.starts_with(t)) {
        true => tensor.into(),
        false => format!("model.language_model.{tensor}"),
    }
}

/// Name of the scales of an int8 weight.
pub fn scale_name(weight: &str) -> String {
    format!("{weight}_scale")
}

/// The `quantization_config` of a model whose checkpoint has a vision tower or none.
pub fn quantization_config(model: &ModelConfig, vision: bool) -> Value {
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
        "exclude": exclude(model, vision),
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

fn exclude(model: &ModelConfig, vision: bool) -> Vec<String> {
    let mut exclude = vec!["lm_head".to_string()];
    for layer in 0..model.layers.len() {
        let mlp = file_name(&format!("layers.{layer}.mlp"));
        exclude.extend(["gate", "shared_expert_gate"].map(|name| format!("{mlp}.{name}")));
    }
    if model.mtp_layers > 0 {
        exclude.push(r"re:mtp\..*".into());
    }
    if vision {
        exclude.push(r"re:(model\.)?visual\..*".into());
    }
    exclude
}
