//! config.json: both nestings, both spellings, and what is refused with file and field.

mod common;

use common::tiny;
use layerlet_core::config::Mixer;
use layerlet_engine::checkpoint::Config;
use serde_json::{Value, json};

fn read(name: &str) -> Value {
    let text = std::fs::read(tiny(name).join("config.json")).expect(name);
    serde_json::from_slice(&text).expect("an oracle's config is JSON")
}

fn parse(json: &Value) -> Result<Config, String> {
    Config::parse(json.to_string().as_bytes()).map_err(|e| e.to_string())
}

#[test]
fn both_nestings_describe_the_same_model() {
    let text = parse(&read("bf16")).expect("bf16");
    let nested = parse(&read("quark")).expect("quark");
    assert_eq!(text.model, nested.model);
    assert_eq!((text.model.hidden, text.model.vocab), (64, 512));
    assert_eq!(text.model.attention.rotary_dim, 8);
    assert_eq!(text.model.attention.rope_theta, 1e7);
    assert_eq!(text.model.rms_norm_eps, 1e-6);
    let expect = [
        Mixer::LinearAttention,
        Mixer::LinearAttention,
        Mixer::LinearAttention,
        Mixer::FullAttention,
    ];
    assert_eq!(text.model.layers, expect);
}

#[test]
fn older_spellings_mean_the_same() {
    let mut json = read("bf16");
    let object = json.as_object_mut().expect("an object");
    object.remove("layer_types");
    object.remove("rope_parameters");
    object.insert("full_attention_interval".into(), 4.into());
    object.insert("rope_theta".into(), 10_000_000.into());
    object.insert("partial_rotary_factor".into(), 0.25.into());
    object.insert("rope_scaling".into(), Value::Null);
    assert_eq!(
        parse(&json).map(|c| c.model),
        parse(&read("bf16")).map(|c| c.model)
    );
}

#[test]
fn end_tokens_are_one_or_a_list() {
    let check = |value: Value, expect: Result<Vec<u32>, &str>| {
        let mut json = read("quark");
        json["text_config"]["eos_token_id"] = value;
        json["eos_token_id"] = 7.into();
        assert_eq!(parse(&json).map(|c| c.eos), expect.map_err(String::from));
    };
    check(Value::Null, Ok(vec![7]));
    check(json!(3), Ok(vec![3, 7]));
    check(json!([9, 3, 7]), Ok(vec![3, 7, 9]));
    check(
        json!([-1]),
        Err("config.json: text_config.eos_token_id: is -1, expected a token id or a list of them"),
    );
}

#[test]
fn what_would_compute_something_else_is_refused() {
    let check = |path: &[&str], value: Value, expect: &str| {
        let mut json = read("quark");
        let (last, parents) = path.split_last().expect("a path");
        let object = parents.iter().fold(&mut json, |at, key| &mut at[key]);
        match value {
            Value::String(s) if s == "REMOVED" => {
                drop(object.as_object_mut().expect("an object").remove(*last))
            }
            value => object[last] = value,
        }
        let found = parse(&json).err();
        assert_eq!(
            found.as_deref(),
            Some(format!("config.json: {expect}").as_str())
        );
    };
    let gone = || Value::from("REMOVED");
    let text = |field: &'static str| ["text_config", field];
    check(
        &text("hidden_size"),
        gone(),
        "text_config.hidden_size: is missing",
    );
    check(
        &text("hidden_size"),
        json!("64"),
        "text_config.hidden_size: is \"64\", expected an integer from 1 to 16,777,216",
    );
    check(
        &text("num_experts"),
        json!(0),
        "text_config.num_experts: is 0, expected an integer from 1 to 16,777,216",
    );
    check(
        &text("num_experts"),
        json!(1u64 << 40),
        "text_config.num_experts: is 1099511627776, expected an integer from 1 to 16,777,216",
    );
    check(
        &text("num_hidden_layers"),
        json!(4097),
        "text_config.num_hidden_layers: is 4097, expected at most 512",
    );
    check(
        &text("num_experts_per_tok"),
        json!(9),
        "num_experts_per_tok: is 9, expected at most num_experts",
    );
    check(
        &text("hidden_act"),
        json!("gelu"),
        "text_config.hidden_act: is \"gelu\", expected \"silu\"",
    );
    check(
        &text("attention_bias"),
        json!(true),
        "text_config.attention_bias: is true, expected false",
    );
    check(
        &text("model_type"),
        json!("qwen3_next"),
        "text_config.model_type: is \"qwen3_next\", expected \"qwen3_5_moe\" or \"qwen3_5_moe_text\"",
    );
    check(
        &text("model_type"),
        gone(),
        "text_config.model_type: is missing",
    );
    check(
        &text("layer_types"),
        json!(["full_attention"]),
        "text_config.layer_types: has 1 entries, num_hidden_layers is 4",
    );
    check(
        &text("layer_types"),
        json!(["mamba", "a", "b", "c"]),
        "text_config.layer_types: is [\"mamba\",\"a\",\"b\",\"c\"], expected a list of linear_attention and full_attention",
    );
    check(
        &text("full_attention_interval"),
        json!(3),
        "text_config.full_attention_interval: disagrees with layer_types at layer 2",
    );
    check(
        &text("partial_rotary_factor"),
        json!(0.5),
        "text_config.rope_parameters.partial_rotary_factor: is 0.25 here and 0.5 elsewhere",
    );
    check(
        &["text_config", "rope_parameters", "rope_type"],
        json!("yarn"),
        "text_config.rope_parameters.rope_type: is \"yarn\", expected \"default\"",
    );
    check(
        &["text_config", "rope_parameters", "rope_theta"],
        gone(),
        "text_config.rope_theta: is missing",
    );
}

#[test]
fn every_size_that_is_missing_is_named() {
    const SIZES: [&str; 18] = [
        "head_dim",
        "hidden_size",
        "linear_conv_kernel_dim",
        "linear_key_head_dim",
        "linear_num_key_heads",
        "linear_num_value_heads",
        "linear_value_head_dim",
        "max_position_embeddings",
        "model_type",
        "moe_intermediate_size",
        "num_attention_heads",
        "num_experts",
        "num_experts_per_tok",
        "num_hidden_layers",
        "num_key_value_heads",
        "rms_norm_eps",
        "shared_expert_intermediate_size",
        "vocab_size",
    ];
    for field in SIZES {
        for gone in [true, false] {
            let mut json = read("quark");
            let text = json["text_config"].as_object_mut().expect("an object");
            text.remove(field).expect(field);
            if !gone {
                text.insert(field.into(), Value::Null);
            }
            let expect = format!("config.json: text_config.{field}: is missing");
            assert_eq!(parse(&json).err(), Some(expect));
        }
    }
    let mut json = read("quark");
    let text = json["text_config"].as_object_mut().expect("an object");
    text.remove("layer_types");
    text.remove("full_attention_interval");
    let expect = "config.json: text_config.layer_types: is missing";
    assert_eq!(parse(&json).err().as_deref(), Some(expect));
}

#[test]
fn other_rotations_and_activations_are_refused() {
    let refused = |path: &[&str], value: Value| {
        for nesting in ["bf16", "quark"] {
            let mut json = read(nesting);
            let text = match nesting {
                "quark" => &mut json["text_config"],
                _ => &mut json,
            };
            let (last, parents) = path.split_last().expect("a path");
            let object = parents.iter().fold(text, |at, key| &mut at[key]);
            object[last] = value.clone();
            let error = parse(&json).expect_err("refused");
            let (field, found) = (path.join("."), format!("is {value}, expected "));
            assert!(error.starts_with("config.json: "), "{error}");
            assert!(error.contains(&format!("{field}: {found}")), "{error}");
        }
    };
    for kind in [
        "linear",
        "dynamic",
        "yarn",
        "longrope",
        "llama3",
        "mrope",
        "proportional",
    ] {
        refused(&["rope_parameters", "rope_type"], json!(kind));
        refused(&["rope_scaling"], json!({"type": kind, "factor": 4.0}));
    }
    for act in ["gelu", "gelu_pytorch_tanh", "relu", "quick_gelu"] {
        refused(&["hidden_act"], json!(act));
    }
    refused(&["attn_output_gate"], json!(false));
    refused(&["mamba_ssm_dtype"], json!("bfloat16"));
    refused(&["norm_topk_prob"], json!(false));
    refused(&["mlp_only_layers"], json!([0]));
    refused(&["decoder_sparse_step"], json!(2));
    refused(&["mtp_use_dedicated_embeddings"], json!(true));
    refused(&["output_gate_type"], json!("sigmoid"));
}

#[test]
fn quantization_is_checked_as_vllm_does() {
    let check = |path: &[&str], value: Value, expect: &str| {
        let mut json = read("quark");
        let object = path
            .iter()
            .fold(&mut json["quantization_config"], |at, key| &mut at[key]);
        *object = value;
        let found = parse(&json).err();
        let expect = format!("config.json: quantization_config.{expect}");
        assert_eq!(found, Some(expect));
    };
    check(
        &["quant_method"],
        json!("fp8"),
        "quant_method: is \"fp8\", expected \"quark\"",
    );
    check(
        &["export", "kv_cache_group"],
        Value::Null,
        "export.kv_cache_group: is missing",
    );
    check(
        &["export", "kv_cache_group"],
        json!(["*k_proj"]),
        "export.kv_cache_group: is [\"*k_proj\"], expected []",
    );
    check(
        &["export", "pack_method"],
        json!("other"),
        "export.pack_method: is \"other\", expected \"order\" or \"reorder\"",
    );
    check(
        &["export", "weight_format"],
        json!("fake_quantized"),
        "export.weight_format: is \"fake_quantized\", expected \"real_quantized\"",
    );
    check(
        &["global_quant_config", "weight", "dtype"],
        json!("int4"),
        "global_quant_config.weight.dtype: is \"int4\", expected \"int8\"",
    );
    check(
        &["global_quant_config", "weight", "symmetric"],
        json!(false),
        "global_quant_config.weight.symmetric: is false, expected true",
    );
    check(
        &["global_quant_config", "weight", "qscheme"],
        json!("per_tensor"),
        "global_quant_config.weight.qscheme: is \"per_tensor\", expected \"per_channel\"",
    );
    check(
        &["global_quant_config", "input_tensors", "is_dynamic"],
        json!(false),
        "global_quant_config.input_tensors.is_dynamic: is false, expected true",
    );
    check(
        &["global_quant_config", "bias"],
        json!({}),
        "global_quant_config.bias: is {}, expected null",
    );
    check(
        &["exclude"],
        json!("lm_head"),
        "exclude: is \"lm_head\", expected a list of module names",
    );
    check(
        &["exclude"],
        json!([1]),
        "exclude: is 1, expected a module name",
    );
    check(
        &["layer_quant_config"],
        json!({"a": 1}),
        "layer_quant_config: is {\"a\":1}, expected {}",
    );
}
