//! A small random model of the family, no two of whose sizes are equal, run on the reference.
#![allow(dead_code)]

use layerlet_core::backend::{Backend, Instance, Place, PlanId};
use layerlet_core::buffer::{BufferDecl, Role};
use layerlet_core::config::*;
use layerlet_core::dtype::DType;
use layerlet_core::numerics::{bf16, philox, round_bf16};
use layerlet_core::plan::*;
use layerlet_core::reference::Reference;
use std::collections::BTreeMap;

pub const VOCAB: usize = 91;
pub const SLOTS: usize = 12;

pub fn config() -> ModelConfig {
    ModelConfig {
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
        mtp_layers: 1,
        tied_embeddings: false,
    }
}

/// Some linears of each kind in each format.
pub fn layout(page_size: usize) -> ModelLayout {
    let w8a8 = [
        "layers.0.linear_attn.in_proj_qkv",
        "layers.0.linear_attn.out_proj",
        "layers.0.mlp.experts.gate_up_proj",
        "layers.0.mlp.experts.down_proj",
        "layers.1.self_attn.q_proj",
        "layers.1.mlp.gate",
        "layers.1.mlp.shared_expert.gate_up_proj",
        "mtp.layers.0.self_attn.k_proj",
    ];
    let formats = BTreeMap::from(w8a8.map(|m| (m.to_string(), LinearFormat::W8A8)));
    let kv_pages = 400_usize.div_ceil(page_size);
    let capacity = Capacity {
        state_slots: SLOTS,
        kv_pages,
        page_size,
        max_positions: 300,
    };
    ModelLayout::new(
        ModelSpec {
            config: config(),
            formats,
        },
        capacity,
    )
    .unwrap()
}

/// Content of a weight: a function of its name, so that another layout of the model holds the same.
pub fn weight(decl: &BufferDecl) -> Vec<u8> {
    let name = decl
        .name
        .bytes()
        .fold(0u32, |h, b| h.rotate_left(5) ^ u32::from(b));
    let unit = |i: usize| {
        let [x, ..] = philox([i as u32, name, 0, 0], [7, 7]);
        x as f32 / 4_294_967_296.0 - 0.5
    };
    let n = decl.elements();
    match decl.dtype {
        DType::Bf16 => (0..n)
            .flat_map(|i| round_bf16(unit(i) * 0.6).to_bits().to_le_bytes())
            .collect(),
        DType::F32 if decl.name.ends_with("_scale") => (0..n)
            .flat_map(|i| ((unit(i) + 0.6) * 0.004).to_le_bytes())
            .collect(),
        DType::F32 => (0..n).flat_map(|i| unit(i).to_le_bytes()).collect(),
        DType::I8 => (0..n).map(|i| (unit(i) * 254.0) as i8 as u8).collect(),
        other => panic!("no weight is {other}"),
    }
}

/// The model in memory.
pub struct Model {
    pub layout: ModelLayout,
    pub instance: Box<dyn Instance>,
}

/// A step that has run.
pub struct Ran {
    pub plan: Plan,
    pub id: PlanId,
}

impl Model {
    pub fn new(page_size: usize) -> Model {
        let layout = layout(page_size);
        let mut instance = Reference.open(layout.table()).unwrap();
        for (id, decl) in layout
            .table()
            .iter()
            .filter(|(_, d)| d.role == Role::Weight)
        {
            let bytes = match decl.name.as_str() {
                "rope.table" => {
                    bytemuck::cast_slice(&rope_table(&config().attention, 300)).to_vec()
                }
                _ => weight(decl),
            };
            instance.write(Place::Model(id), 0, &bytes).unwrap();
        }
        Model { layout, instance }
    }

    pub fn step(&mut self, shape: &StepShape, sequences: &[SequenceStep<'_>]) -> Ran {
        let plan = forward(&self.layout, shape).unwrap();
        let input = StepInput::new(&self.layout, shape, sequences).unwrap();
        self.run(plan, &input)
    }

    pub fn run(&mut self, plan: Plan, input: &StepInput) -> Ran {
        let id = self.instance.prepare(&plan).unwrap();
        for (name, bytes) in input.buffers() {
            let buffer = plan.buffers.find(name).unwrap();
            assert_eq!(
                bytes.len(),
                plan.buffers.get(buffer).unwrap().bytes(),
                "{name}"
            );
            self.instance
                .write(Place::Plan(id, buffer), 0, bytes)
                .unwrap();
        }
        self.instance.poison(id, 0xaa).unwrap();
        self.instance.run(id, usize::MAX).unwrap();
        Ran { plan, id }
    }

    pub fn read(&mut self, ran: &Ran, name: &str) -> Vec<u8> {
        let buffer = ran.plan.buffers.find(name).unwrap();
        let mut bytes = vec![0; ran.plan.buffers.get(buffer).unwrap().bytes()];
        self.instance
            .read(Place::Plan(ran.id, buffer), 0, &mut bytes)
            .unwrap();
        bytes
    }

    pub fn read_u32(&mut self, ran: &Ran, name: &str) -> Vec<u32> {
        bytemuck::pod_collect_to_vec(&self.read(ran, name))
    }

    pub fn read_bf16(&mut self, ran: &Ran, name: &str) -> Vec<bf16> {
        bytemuck::pod_collect_to_vec(&self.read(ran, name))
    }

    /// Conv and recurrent state of a slot, all layers.
    pub fn slot(&mut self, slot: u32) -> Vec<u8> {
        let state =
            |d: &BufferDecl| d.name.ends_with("conv_state") || d.name.ends_with("ssm_state");
        let table = self.layout.table().clone();
        let mut all = Vec::new();
        for (id, decl) in table.iter().filter(|(_, d)| state(d)) {
            let size = decl.bytes() / SLOTS;
            let mut bytes = vec![0; size];
            self.instance
                .read(Place::Model(id), slot as usize * size, &mut bytes)
                .unwrap();
            all.extend(bytes);
        }
        all
    }
}

/// Token ids without a pattern that a model could hide behind.
pub fn ids(n: usize, seed: u32) -> Vec<u32> {
    (0..n as u32)
        .map(|i| philox([i, seed, 0, 0], [1, 2])[0] % VOCAB as u32)
        .collect()
}

pub fn shape(tokens: usize, sequences: usize, outputs: usize, pages: usize) -> StepShape {
    StepShape {
        tokens,
        sequences,
        outputs,
        pages_per_sequence: pages,
        head: Head::Argmax,
        verify: false,
        trace: false,
    }
}
