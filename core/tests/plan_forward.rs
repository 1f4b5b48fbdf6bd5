//! A small model runs from token ids to logits, and chunking does not show.

use layerlet_core::backend::{Backend, Instance, Place};
use layerlet_core::buffer::Role;
use layerlet_core::config::*;
use layerlet_core::dtype::DType;
use layerlet_core::launch::{Launch, Layerlet};
use layerlet_core::numerics::{philox, round_bf16};
use layerlet_core::plan::*;
use layerlet_core::reference::Reference;
use std::collections::{BTreeMap, HashSet};

const VOCAB: usize = 91;

fn layout() -> ModelLayout {
    let config = ModelConfig {
        hidden: 48,
        vocab: VOCAB,
        layers: vec![Mixer::LinearAttention, Mixer::FullAttention],
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
            key_dim: 12,
            value_dim: 10,
            conv_width: 4,
        },
        moe: MoeConfig {
            experts: 7,
            top_k: 3,
            intermediate: 36,
            shared_intermediate: 28,
        },
        rms_norm_eps: 1e-6,
        max_position: 512,
        mtp_layers: 0,
        tied_embeddings: false,
    };
    let w8a8 = [
        "layers.0.linear_attn.in_proj_qkv",
        "layers.0.mlp.experts.gate_up_proj",
        "layers.1.self_attn.q_proj",
    ];
    let formats = BTreeMap::from(w8a8.map(|m| (m.to_string(), LinearFormat::W8A8)));
    let capacity = Capacity {
        state_slots: 4,
        kv_pages: 20,
        page_size: 7,
        max_positions: 300,
    };
    ModelLayout::new(ModelSpec { config, formats }, capacity).unwrap()
}

fn open(layout: &ModelLayout) -> Box<dyn Instance> {
    let mut instance = Reference.open(layout.table()).unwrap();
    for (id, decl) in layout
        .table()
        .iter()
        .filter(|(_, d)| d.role == Role::Weight)
    {
        let unit = |i: usize| {
            let [x, ..] = philox([i as u32, id.0, 0, 0], [7, 7]);
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
        instance.write(Place::Model(id), 0, &bytes).unwrap();
    }
    instance
}

/// The layerlets of a small plan, and one of each kind where the formats allow it.
#[test]
fn every_layerlet_finds_its_stages() {
    let layout = layout();
    let shape = StepShape {
        tokens: 5,
        sequences: 2,
        outputs: 1,
        pages_per_sequence: 3,
        head: Head::Argmax,
        verify: false,
        trace: false,
    };
    let plan = forward(&layout, &shape).unwrap();
    let kinds = |plan: &Plan| -> Vec<&str> {
        let fused = plan
            .launches
            .iter()
            .filter(|l| matches!(l, Launch::Fused(_)));
        fused.map(|l| l.name()).collect()
    };
    let all = fuse(&plan, &Layerlet::ALL);
    let expected = [
        "quantize_linear",
        "gdn_layer",
        "moe_layer",
        "quantize_linear",
        "attention_layer",
        "moe_layer",
        "lm_head_argmax",
    ];
    assert_eq!(kinds(&all), expected);
    assert_eq!(
        kinds(&fuse(&plan, &[Layerlet::RoutedMoe])),
        ["routed_moe"; 2]
    );
    assert_eq!(unfuse(&all), plan);
    assert_eq!(all.validate(), Ok(()));
    let kept = |plan: &Plan| {
        let kept = |l: &&Launch| matches!(l, Launch::Fused(f) if f.keep_intermediates);
        plan.launches.iter().filter(kept).count()
    };
    assert_eq!(kept(&all), 0);
    let traced = forward(
        &layout,
        &StepShape {
            trace: true,
            ..shape
        },
    )
    .unwrap();
    let traced = fuse(&traced, &Layerlet::ALL);
    // Router ids, shared projections and logits are shown; the delta rule shows nothing inside.
    assert_eq!(kept(&traced), 3);
    let (fused, plain) = (all.cost(), plan.cost());
    assert!(fused.traffic.max < plain.traffic.max && fused.launches.len() < plain.launches.len());
    assert!(fused.memory.scratch_peak < plain.memory.scratch);
}

fn logits(chunks: &[usize]) -> Vec<Vec<u8>> {
    let layout = layout();
    let mut instance = open(&layout);
    let ids: Vec<u32> = (0..chunks.iter().sum::<usize>() as u32)
        .map(|i| (i * 37 + 5) % VOCAB as u32)
        .collect();
    let pages: Vec<u32> = (0..12).map(|p| (p * 7 + 3) % 20).collect();
    let (mut start, mut all) = (0, Vec::new());
    for &n in chunks {
        let shape = StepShape {
            tokens: n + 2,
            sequences: 2,
            outputs: n,
            pages_per_sequence: 12,
            head: Head::Logits,
            verify: false,
            trace: false,
        };
        let plan = forward(&layout, &shape).unwrap();
        assert_eq!(Plan::decode(&plan.encode()).as_ref(), Ok(&plan));
        let id = instance.prepare(&plan).unwrap();
        let outputs: Vec<usize> = (0..n).collect();
        let step = SequenceStep {
            tokens: &ids[start..start + n],
            start: start as u32,
            pages: &pages,
            state_read: (start > 0).then_some(2),
            state_writes: &[(n - 1, 2)],
            outputs: &outputs,
            sampling: None,
        };
        for (name, bytes) in StepInput::new(&layout, &shape, &[step]).unwrap().buffers() {
            let buffer = plan.buffers.find(name).unwrap();
            instance.write(Place::Plan(id, buffer), 0, bytes).unwrap();
        }
        instance.poison(id, 0xaa).unwrap();
        instance.run(id, usize::MAX).unwrap();
        let mut bytes = vec![0; n * VOCAB * 2];
        let buffer = plan.buffers.find("logits").unwrap();
        instance
            .read(Place::Plan(id, buffer), 0, &mut bytes)
            .unwrap();
        all.extend(bytes.chunks_exact(VOCAB * 2).map(<[u8]>::to_vec));
        start += n;
    }
    all
}

#[test]
fn chunking_does_not_show() {
    let whole = logits(&[70]);
    let distinct: HashSet<_> = whole.iter().collect();
    assert!(
        distinct.len() > 60,
        "logits hardly depend on the input: {} distinct rows",
        distinct.len()
    );
    assert_eq!(whole, logits(&[40, 17, 1, 1, 11]));
}
