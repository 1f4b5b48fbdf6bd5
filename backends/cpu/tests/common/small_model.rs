//! A small model of both mixers, with random weights.

use layerlet_core::backend::{Instance, Place};
use layerlet_core::buffer::Role;
use layerlet_core::config::*;
use layerlet_core::dtype::DType;
use layerlet_core::numerics::{philox, round_bf16};
use layerlet_core::plan::*;
use std::collections::BTreeMap;

const VOCAB: usize = 131;

pub fn config() -> ModelConfig {
    ModelConfig {
        hidden: 72,
        vocab: VOCAB,
        layers: vec![
            Mixer::LinearAttention,
            Mixer::FullAttention,
            Mixer::LinearAttention,
        ],
        attention: AttentionConfig {
            heads: 4,
            kv_heads: 2,
            head_dim: 20,
            rotary_dim: 8,
            rope_theta: 1e7,
        },
        delta_net: DeltaNetConfig {
            key_heads: 2,
            value_heads: 6,
            key_dim: 34,
            value_dim: 18,
            conv_width: 4,
        },
        moe: MoeConfig {
            experts: 7,
            top_k: 3,
            intermediate: 40,
            shared_intermediate: 28,
        },
        rms_norm_eps: 1e-6,
        max_position: 512,
        mtp_layers: 0,
        tied_embeddings: false,
    }
}

/// Which linears are W8A8: none, those of the published checkpoints, all.
pub fn formats(kind: usize) -> BTreeMap<String, LinearFormat> {
    let always = [
        "linear_attn.in_proj_qkv",
        "linear_attn.in_proj_z",
        "linear_attn.out_proj",
        "self_attn.q_proj",
        "self_attn.k_proj",
        "self_attn.v_proj",
        "self_attn.o_proj",
        "mlp.experts.gate_up_proj",
        "mlp.experts.down_proj",
        "mlp.shared_expert.gate_up_proj",
        "mlp.shared_expert.down_proj",
    ];
    let sometimes = [
        "linear_attn.in_proj_a",
        "linear_attn.in_proj_b",
        "mlp.gate",
        "mlp.shared_expert_gate",
    ];
    let names: Vec<&str> = match kind {
        0 => Vec::new(),
        1 => always.into(),
        _ => [&always[..], &sometimes[..]].concat(),
    };
    let all = (0..3).flat_map(|n| names.iter().map(move |m| format!("layers.{n}.{m}")));
    all.map(|name| (name, LinearFormat::W8A8)).collect()
}

pub fn fill(instance: &mut dyn Instance, layout: &ModelLayout) {
    let weights = layout
        .table()
        .iter()
        .filter(|(_, d)| d.role == Role::Weight);
    for (id, decl) in weights {
        let unit = |i: usize| {
            let [x, ..] = philox([i as u32, id.0, 0, 0], [11, 7]);
            x as f32 / 4_294_967_296.0 - 0.5
        };
        let n = decl.elements();
        let bytes: Vec<u8> = match decl.dtype {
            DType::Bf16 => (0..n)
                .flat_map(|i| round_bf16(unit(i) * 0.6).to_bits().to_le_bytes())
                .collect(),
            DType::F32 if decl.name.ends_with("_scale") => (0..n)
                .flat_map(|i| ((unit(i) + 0.6) * 0.004).to_le_bytes())
                .collect(),
            DType::F32 => (0..n).flat_map(|i| unit(i).to_le_bytes()).collect(),
            DType::I8 => (0..n).map(|i| (unit(i) * 254.0) as i8 as u8).collect(),
            other => panic!("no weight is {other}"),
        };
        instance
            .write(Place::Model(id), 0, &bytes)
            .expect("a weight");
    }
}
