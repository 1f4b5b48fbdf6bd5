//! A small random model of the family, no two of whose sizes are equal, in the memory of any backend.

use layerlet_core::backend::{Backend, BackendError, Instance, Place, PlanId};
use layerlet_core::buffer::{BufferDecl, Role};
use layerlet_core::config::*;
use layerlet_core::dtype::DType;
use layerlet_core::launch::Layerlet;
use layerlet_core::numerics::{philox, round_bf16};
use layerlet_core::plan::*;
use layerlet_engine::checkpoint::CheckpointError;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Token ids lie below this.
pub const VOCAB: usize = 90;
/// State slots.
pub const SLOTS: usize = 13;
/// Poison of scratch, outputs and fouled state.
const POISON: u8 = 0xAA;

/// Why a step of a model did not run.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
#[allow(missing_docs)]
pub enum ModelError {
    Backend(#[from] BackendError),
    Plan(#[from] PlanError),
    Step(#[from] StepError),
    Checkpoint(#[from] CheckpointError),
    #[error("{}: {problem}", path.display())]
    File {
        path: PathBuf,
        problem: String,
    },
}

/// How the weights are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Formats {
    /// All in bf16.
    Bf16,
    /// As in the published checkpoints: W8A8 but for gates, embedding and head.
    W8A8,
}

/// Sizes that two ranks can halve, and experts that four can share.
pub fn config(positions: usize) -> ModelConfig {
    ModelConfig {
        hidden: 48,
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
            key_dim: 12,
            value_dim: 10,
            conv_width: 4,
        },
        moe: MoeConfig {
            experts: 8,
            top_k: 3,
            intermediate: 36,
            shared_intermediate: 28,
        },
        rms_norm_eps: 1e-6,
        max_position: positions,
        mtp_layers: 0,
        tied_embeddings: false,
    }
}

/// Sizes and formats of a small model.
pub fn spec(formats: Formats, positions: usize) -> ModelSpec {
    let config = config(positions);
    let modules = [
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
    let layers = match formats {
        Formats::Bf16 => 0,
        Formats::W8A8 => config.layers.len(),
    };
    let named = (0..layers).flat_map(|n| modules.map(|m| format!("layers.{n}.{m}")));
    ModelSpec {
        formats: named.map(|name| (name, LinearFormat::W8A8)).collect(),
        config,
    }
}

/// The bytes of every weight by its name: other capacities and ranks hold the same model.
pub fn weights(spec: &ModelSpec, capacity: Capacity) -> Result<Weights, PlanError> {
    let layout = ModelLayout::new(spec.clone(), capacity)?;
    let table = layout
        .table()
        .iter()
        .filter(|(_, d)| d.role == Role::Weight);
    let bytes = table.map(|(_, decl)| {
        let bytes = match decl.name.as_str() {
            "rope.table" => {
                let table = rope_table(&spec.config.attention, capacity.max_positions);
                bytemuck::cast_slice(&table).to_vec()
            }
            _ => weight(decl),
        };
        (decl.name.clone(), (decl.clone(), bytes))
    });
    Ok(bytes.collect())
}

/// Declaration and bytes of each weight.
pub type Weights = BTreeMap<String, (BufferDecl, Vec<u8>)>;

fn weight(decl: &BufferDecl) -> Vec<u8> {
    let bytes = decl.name.bytes();
    let name = bytes.fold(0u32, |h, b| h.rotate_left(5) ^ u32::from(b));
    let unit = |i: u32| philox([i, name, 0, 0], [3, 5])[0] as f32 / 4_294_967_296.0 - 0.5;
    let all = 0..decl.elements() as u32;
    match decl.dtype {
        DType::Bf16 => all
            .flat_map(|i| round_bf16(unit(i) * 0.6).to_le_bytes())
            .collect(),
        DType::F32 if decl.name.ends_with("_scale") => all
            .flat_map(|i| ((unit(i) + 0.6) * 0.004).to_le_bytes())
            .collect(),
        DType::F32 => all.flat_map(|i| unit(i).to_le_bytes()).collect(),
        DType::I8 | DType::I32 | DType::U32 => all
            .flat_map(|i| ((unit(i) * 254.0) as i32).to_le_bytes()[..decl.dtype.size()].to_vec())
            .collect(),
    }
}

/// Token ids without a pattern that a model could hide behind.
pub fn ids(n: usize, seed: u32) -> Vec<u32> {
    (0..n as u32)
        .map(|i| philox([i, seed, 0, 0], [1, 2])[0] % VOCAB as u32)
        .collect()
}

/// The model in a backend's memory, with the plans that were prepared over it.
pub struct Model {
    layout: ModelLayout,
    instance: Box<dyn Instance>,
    plans: Vec<Prepared>,
}

struct Prepared {
    shape: StepShape,
    fused: bool,
    plan: Plan,
    id: PlanId,
}

/// A step that has run: where its outputs lie.
#[derive(Clone, Copy, Debug)]
pub struct Ran(usize);

impl Model {
    /// Takes memory and writes the weights.
    pub fn open(
        backend: &dyn Backend,
        spec: &ModelSpec,
        capacity: Capacity,
        weights: &Weights,
    ) -> Result<Model, ModelError> {
        let layout = ModelLayout::new(spec.clone(), capacity)?;
        let mut instance = backend.open(layout.table())?;
        for (id, decl) in layout.table().iter() {
            if let Some((_, bytes)) = weights.get(&decl.name) {
                instance.write(Place::Model(id), 0, bytes)?;
            }
        }
        Ok(Model {
            layout,
            instance,
            plans: Vec::new(),
        })
    }

    /// Fills all state with what a fresh sequence must not see.
    pub fn foul_state(&mut self) -> Result<(), ModelError> {
        for (id, decl) in self.layout.table().iter() {
            if decl.role == Role::State {
                let bytes = vec![POISON; decl.bytes()];
                self.instance.write(Place::Model(id), 0, &bytes)?;
            }
        }
        Ok(())
    }

    /// Runs a step; a plan of the same shape is prepared once and run again.
    pub fn step(
        &mut self,
        shape: &StepShape,
        fused: bool,
        sequences: &[SequenceStep<'_>],
    ) -> Result<Ran, ModelError> {
        let input = StepInput::new(&self.layout, shape, sequences)?;
        let at = self.prepared(shape, fused)?;
        let Prepared { plan, id, .. } = &self.plans[at];
        self.instance.poison(*id, POISON)?;
        for (name, bytes) in input.buffers() {
            let buffer = plan.buffers.find(name).map_err(BackendError::from)?;
            self.instance.write(Place::Plan(*id, buffer), 0, bytes)?;
        }
        self.instance.run(*id, usize::MAX)?;
        Ok(Ran(at))
    }

    fn prepared(&mut self, shape: &StepShape, fused: bool) -> Result<usize, ModelError> {
        let same = |p: &Prepared| p.shape == *shape && p.fused == fused;
        if let Some(at) = self.plans.iter().position(same) {
            return Ok(at);
        }
        let mut plan = forward(&self.layout, shape)?;
        if fused {
            plan = fuse(&plan, &Layerlet::ALL);
        }
        self.plans.push(Prepared {
            shape: *shape,
            fused,
            id: self.instance.prepare(&plan)?,
            plan,
        });
        Ok(self.plans.len() - 1)
    }

    /// Reads an output of a step; none where a fused kernel does not store it.
    pub fn output(&mut self, ran: Ran, name: &str) -> Result<Option<Vec<u8>>, ModelError> {
        let Prepared {
            plan, id, fused, ..
        } = &self.plans[ran.0];
        let buffer = plan.buffers.find(name).map_err(BackendError::from)?;
        let decl = plan.buffers.get(buffer).map_err(BackendError::from)?;
        if *fused && decl.role != Role::Output {
            return Ok(None);
        }
        let mut bytes = vec![0; decl.bytes()];
        self.instance
            .read(Place::Plan(*id, buffer), 0, &mut bytes)?;
        Ok(Some(bytes))
    }

    /// Reads element `index` of the first dimension of a state buffer.
    pub fn state(&mut self, name: &str, index: u32) -> Result<Vec<u8>, ModelError> {
        let table = self.layout.table();
        let id = table.find(name).map_err(BackendError::from)?;
        let decl = table.get(id).map_err(BackendError::from)?;
        let size = decl.bytes() / decl.shape[0];
        let mut bytes = vec![0; size];
        self.instance
            .read(Place::Model(id), index as usize * size, &mut bytes)?;
        Ok(bytes)
    }

    /// The state buffers, layer by layer.
    pub fn states(&self) -> Vec<BufferDecl> {
        let table = self.layout.table().iter();
        table
            .filter(|(_, d)| d.role == Role::State)
            .map(|(_, d)| d.clone())
            .collect()
    }
}
