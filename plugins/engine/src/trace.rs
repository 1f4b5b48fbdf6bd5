//! What a model computes for given ids, layer by layer, as safetensors.
//!
//! Invariant: the bytes depend on the ids and the model alone, never on the chunks or the backend.

use crate::error::EngineError;
use crate::model::Model;
use layerlet_core::config::Mixer;
use layerlet_core::dtype::DType;
use layerlet_core::plan::{Head, SequenceStep, StepShape};
use safetensors::tensor::{Dtype, TensorView};
use std::collections::BTreeMap;

/// A tensor of a trace under construction.
struct Traced {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

/// Runs ids in chunks of these sizes and returns a safetensors file: `embed`, `layerN.mixer_out`, `layerN.out`,
/// `layerN.router_logits|router_ids|router_weights`, `layerN.conv_state|ssm_state` or `layerN.k_cache|v_cache`,
/// `final_norm`, `logits`, `input_ids`. The bytes depend on the ids and the model alone.
pub fn trace(model: &mut Model, ids: &[u32], chunks: &[usize]) -> Result<Vec<u8>, EngineError> {
    if ids.is_empty() || chunks.contains(&0) || sum(chunks) != Some(ids.len()) {
        let expected = format!("sizes above 0 that add up to the {} ids", ids.len());
        return Err(EngineError::request(
            "chunks",
            format!("{chunks:?}"),
            expected,
        ));
    }
    let mut tensors: BTreeMap<String, Traced> = BTreeMap::new();
    let mut start = 0;
    for &count in chunks {
        run_chunk(model, ids, start, count, &mut tensors)?;
        start += count;
    }
    read_states(model, ids.len(), &mut tensors)?;
    let input = Traced {
        dtype: Dtype::I32,
        shape: vec![ids.len()],
        bytes: bytemuck::cast_slice(ids).to_vec(),
    };
    tensors.insert("input_ids".into(), input);
    serialize(&tensors)
}

fn sum(chunks: &[usize]) -> Option<usize> {
    chunks.iter().try_fold(0usize, |sum, n| sum.checked_add(*n))
}

/// Names in the plan and in the trace.
fn shown(layers: usize) -> Vec<(String, String)> {
    let whole = ["embed", "final_norm", "logits"].map(|n| (n.to_string(), n.to_string()));
    let kinds = [
        "mixer_out",
        "out",
        "router_logits",
        "router_ids",
        "router_weights",
    ];
    let of_layer = |n: usize| kinds.map(|k| (format!("layers.{n}.{k}"), format!("layer{n}.{k}")));
    whole
        .into_iter()
        .chain((0..layers).flat_map(of_layer))
        .collect()
}

fn run_chunk(
    model: &mut Model,
    ids: &[u32],
    start: usize,
    count: usize,
    tensors: &mut BTreeMap<String, Traced>,
) -> Result<(), EngineError> {
    let pages: Vec<u32> = (0..model.layout().capacity().kv_pages as u32).collect();
    let outputs: Vec<usize> = (0..count).collect();
    let shape = StepShape {
        tokens: count,
        sequences: 1,
        outputs: count,
        pages_per_sequence: pages.len(),
        head: Head::Logits,
        verify: false,
        trace: true,
    };
    let sequence = SequenceStep {
        tokens: &ids[start..start + count],
        start: start as u32,
        pages: &pages,
        state_read: (start > 0).then_some(0),
        state_writes: &[(count - 1, 0)],
        outputs: &outputs,
        sampling: None,
    };
    let layers = model.layout().layers.len();
    let mut step = model.step(&shape, &[sequence])?;
    for (buffer, name) in shown(layers) {
        let width = step.width(&buffer)?;
        let (dtype, bytes) = step.read_bytes(&buffer)?;
        let traced = tensors.entry(name).or_insert(Traced {
            // Ids are small; int32 is what the oracles hold.
            dtype: match dtype {
                DType::Bf16 => Dtype::BF16,
                DType::F32 => Dtype::F32,
                _ => Dtype::I32,
            },
            shape: vec![0, width],
            bytes: Vec::new(),
        });
        traced.shape[0] += count;
        traced.bytes.extend(bytes);
    }
    Ok(())
}

fn read_states(
    model: &mut Model,
    tokens: usize,
    tensors: &mut BTreeMap<String, Traced>,
) -> Result<(), EngineError> {
    let config = model.layout().config().clone();
    for (n, mixer) in config.layers.iter().enumerate() {
        match mixer {
            Mixer::LinearAttention => {
                let d = &config.delta_net;
                let (width, channels) = (d.conv_width - 1, d.channels());
                let conv: Vec<half::bf16> = model.read_state(&format!("layers.{n}.conv_state"))?;
                let by_channel: Vec<half::bf16> = (0..channels)
                    .flat_map(|c| (0..width).map(move |w| w * channels + c))
                    .map(|i| conv[i])
                    .collect();
                put(
                    tensors,
                    format!("layer{n}.conv_state"),
                    Dtype::BF16,
                    &[channels, width],
                    &by_channel,
                );
                let ssm: Vec<f32> = model.read_state(&format!("layers.{n}.ssm_state"))?;
                let shape = [d.value_heads, d.key_dim, d.value_dim];
                put(
                    tensors,
                    format!("layer{n}.ssm_state"),
                    Dtype::F32,
                    &shape,
                    &ssm,
                );
            }
            Mixer::FullAttention => {
                let a = &config.attention;
                for kind in ["k_cache", "v_cache"] {
                    // Pages are in logical order here, so a row is [position, head, dim].
                    let cache: Vec<half::bf16> = model.read_state(&format!("layers.{n}.{kind}"))?;
                    let row = |h: usize, t: usize| (t * a.kv_heads + h) * a.head_dim;
                    let by_head: Vec<half::bf16> = (0..a.kv_heads)
                        .flat_map(|h| (0..tokens).map(move |t| row(h, t)))
                        .flat_map(|at| &cache[at..at + a.head_dim])
                        .copied()
                        .collect();
                    let shape = [a.kv_heads, tokens, a.head_dim];
                    put(
                        tensors,
                        format!("layer{n}.{kind}"),
                        Dtype::BF16,
                        &shape,
                        &by_head,
                    );
                }
            }
        }
    }
    Ok(())
}

fn put<E: bytemuck::Pod>(
    tensors: &mut BTreeMap<String, Traced>,
    name: String,
    dtype: Dtype,
    shape: &[usize],
    content: &[E],
) {
    let traced = Traced {
        dtype,
        shape: shape.to_vec(),
        bytes: bytemuck::cast_slice(content).to_vec(),
    };
    tensors.insert(name, traced);
}

fn serialize(tensors: &BTreeMap<String, Traced>) -> Result<Vec<u8>, EngineError> {
    let failed = |e: safetensors::SafeTensorError| EngineError::File {
        path: "trace".into(),
        problem: e.to_string(),
    };
    let mut views = Vec::new();
    for (name, t) in tensors {
        let view = TensorView::new(t.dtype, t.shape.clone(), &t.bytes).map_err(failed)?;
        views.push((name.as_str(), view));
    }
    safetensors::serialize(views, None).map_err(failed)
}
