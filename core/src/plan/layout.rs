//! A model's weights and state as buffers: which there are, their names, shapes and handles.

use super::{PlanError, Split};
use crate::buffer::{Buf, BufferError, BufferTable, Role};
use crate::config::{AttentionConfig, DeltaNetConfig, Mixer, ModelConfig};
use crate::numerics::bf16;
use alloc::collections::BTreeMap;
use alloc::{format, string::String, vec::Vec};
use serde::{Deserialize, Serialize};

/// How the weights of a linear layer are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinearFormat {
    /// bf16 `[N, K]`.
    Bf16,
    /// s8 `[N, K]` with one f32 scale a row; its input is quantised row by row.
    W8A8,
}

/// What a checkpoint holds: the model's sizes, and the format of each linear.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelSpec {
    /// Sizes and kinds.
    pub config: ModelConfig,
    /// By canonical module name (`layers.3.mlp.experts.gate_up_proj`); bf16 where absent.
    pub formats: BTreeMap<String, LinearFormat>,
}

impl ModelSpec {
    /// The format of a linear.
    pub fn format(&self, module: &str) -> LinearFormat {
        self.formats
            .get(module)
            .copied()
            .unwrap_or(LinearFormat::Bf16)
    }
}

/// How much state there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// Slots of conv and recurrent state.
    pub state_slots: usize,
    /// Pages of keys and values.
    pub kv_pages: usize,
    /// Positions of a page.
    pub page_size: usize,
    /// Rows of the rotary table: one more than the last position.
    pub max_positions: usize,
}

/// Weights of a linear layer, `[.., N, K]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LinearWeight {
    /// bf16.
    Bf16(Buf<bf16>),
    /// s8 and scales.
    W8A8 {
        /// `[.., N, K]`
        weight: Buf<i8>,
        /// `[.., N]`
        scale: Buf<f32>,
    },
}

/// Buffers of the gated delta net of a layer.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct DeltaNetBuffers {
    pub in_proj_qkv: LinearWeight,
    pub in_proj_z: LinearWeight,
    pub in_proj_b: LinearWeight,
    pub in_proj_a: LinearWeight,
    pub conv1d: Buf<f32>,
    pub a_log: Buf<f32>,
    pub dt_bias: Buf<f32>,
    pub norm: Buf<f32>,
    pub out_proj: LinearWeight,
    pub conv_state: Buf<bf16>,
    pub ssm_state: Buf<f32>,
}

/// Buffers of the attention of a layer.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct AttentionBuffers {
    pub q_proj: LinearWeight,
    pub k_proj: LinearWeight,
    pub v_proj: LinearWeight,
    pub o_proj: LinearWeight,
    pub q_norm: Buf<f32>,
    pub k_norm: Buf<f32>,
    pub k_cache: Buf<bf16>,
    pub v_cache: Buf<bf16>,
}

/// The token mixer of a layer.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum MixerBuffers {
    DeltaNet(DeltaNetBuffers),
    Attention(AttentionBuffers),
}

/// Buffers of a layer's mixture of experts.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct MoeBuffers {
    pub gate: LinearWeight,
    pub gate_up: LinearWeight,
    pub down: LinearWeight,
    pub shared_gate: LinearWeight,
    pub shared_gate_up: LinearWeight,
    pub shared_down: LinearWeight,
}

/// Buffers of a decoder layer.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct LayerBuffers {
    pub input_norm: Buf<f32>,
    pub mixer: MixerBuffers,
    pub post_attention_norm: Buf<f32>,
    pub moe: MoeBuffers,
}

/// Buffers of the multi-token-prediction head.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct MtpBuffers {
    pub norm_embedding: Buf<f32>,
    pub norm_hidden: Buf<f32>,
    pub fc: LinearWeight,
    pub layer: LayerBuffers,
    pub norm: Buf<f32>,
}

/// All persistent buffers of a model.
#[derive(Clone, Debug)]
pub struct ModelLayout {
    spec: ModelSpec,
    local: ModelConfig,
    capacity: Capacity,
    split: Split,
    table: BufferTable,
    /// `[V, H]`
    pub embedding: Buf<bf16>,
    /// `[positions, 2, rotary / 2]`
    pub rope_table: Buf<bf16>,
    /// In order.
    pub layers: Vec<LayerBuffers>,
    /// `[H]`
    pub norm: Buf<f32>,
    /// `[V, H]`: the embedding table where the two are tied.
    pub lm_head: Buf<bf16>,
    /// The draft head, where the checkpoint has one.
    pub mtp: Option<MtpBuffers>,
}

impl ModelLayout {
    /// Declares every buffer of a model.
    pub fn new(spec: ModelSpec, capacity: Capacity) -> Result<ModelLayout, PlanError> {
        ModelLayout::of_rank(spec, capacity, Split::WHOLE)
    }

    /// Declares the buffers of one rank's part of a model.
    pub fn of_rank(
        spec: ModelSpec,
        capacity: Capacity,
        split: Split,
    ) -> Result<ModelLayout, PlanError> {
        spec.config.validate()?;
        check_capacity(&spec.config, &capacity)?;
        split.check(&spec.config)?;
        let local = split.local_config(&spec.config);
        let mut d = Declare {
            table: BufferTable::default(),
            spec: &spec,
            local: &local,
            capacity: &capacity,
            split,
        };
        let c = &spec.config;
        let embedding = d.weight("embed_tokens.weight", &[c.vocab, c.hidden])?;
        let rope_shape = [capacity.max_positions, 2, c.attention.rotary_dim / 2];
        let rope_table = d.weight("rope.table", &rope_shape)?;
        let layers = (0..c.layers.len())
            .map(|n| d.layer(&format!("layers.{n}"), c.layers[n]))
            .collect::<Result<_, _>>()?;
        let norm = d.weight("norm.weight", &[c.hidden])?;
        let lm_head = match c.tied_embeddings {
            true => embedding,
            false => d.weight("lm_head.weight", &[local.vocab, c.hidden])?,
        };
        let mtp = (c.mtp_layers > 0).then(|| d.mtp()).transpose()?;
        let table = d.table;
        Ok(ModelLayout {
            local,
            spec,
            capacity,
            split,
            table,
            embedding,
            rope_table,
            layers,
            norm,
            lm_head,
            mtp,
        })
    }

    /// The buffers.
    pub fn table(&self) -> &BufferTable {
        &self.table
    }

    /// What the checkpoint holds.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// Room for state.
    pub fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    /// The model's sizes.
    pub fn config(&self) -> &ModelConfig {
        &self.spec.config
    }

    /// The sizes of this rank's part: its heads, its experts or its columns of them, its part of the vocabulary.
    pub fn local(&self) -> &ModelConfig {
        &self.local
    }

    /// Which rank this is.
    pub fn split(&self) -> Split {
        self.split
    }
}

fn check_capacity(config: &ModelConfig, capacity: &Capacity) -> Result<(), PlanError> {
    let fields = [
        ("state_slots", capacity.state_slots, u32::MAX as usize),
        ("kv_pages", capacity.kv_pages, u32::MAX as usize),
        ("page_size", capacity.page_size, 1 << 20),
        ("max_positions", capacity.max_positions, config.max_position),
    ];
    for (field, found, most) in fields {
        if found == 0 || found > most {
            let expected = format!("1 to {most}");
            return Err(PlanError::Shape {
                field,
                found,
                expected,
            });
        }
    }
    Ok(())
}

struct Declare<'a> {
    table: BufferTable,
    spec: &'a ModelSpec,
    local: &'a ModelConfig,
    split: Split,
    capacity: &'a Capacity,
}

impl Declare<'_> {
    fn weight<E: crate::dtype::Element>(
        &mut self,
        name: &str,
        shape: &[usize],
    ) -> Result<Buf<E>, BufferError> {
        self.table.declare(name, shape, Role::Weight)
    }

    fn state<E: crate::dtype::Element>(
        &mut self,
        name: String,
        shape: &[usize],
    ) -> Result<Buf<E>, BufferError> {
        self.table.declare(name, shape, Role::State)
    }

    fn linear(&mut self, module: &str, shape: &[usize]) -> Result<LinearWeight, BufferError> {
        let name = format!("{module}.weight");
        match self.spec.format(module) {
            LinearFormat::Bf16 => Ok(LinearWeight::Bf16(self.weight(&name, shape)?)),
            LinearFormat::W8A8 => Ok(LinearWeight::W8A8 {
                weight: self.weight(&name, shape)?,
                scale: self.weight(&format!("{name}_scale"), &shape[..shape.len() - 1])?,
            }),
        }
    }

    /// A linear over columns that the ranks share, back to the hidden size: cut by K where the sums are integers,
    /// by N where they are floats.
    fn output_linear(
        &mut self,
        module: &str,
        n: usize,
        k: usize,
    ) -> Result<LinearWeight, BufferError> {
        let ranks = self.split.tensor_ranks();
        match self.spec.format(module) {
            LinearFormat::Bf16 => self.linear(module, &[n / ranks, k]),
            LinearFormat::W8A8 => self.linear(module, &[n, k / ranks]),
        }
    }

    fn layer(&mut self, p: &str, mixer: Mixer) -> Result<LayerBuffers, BufferError> {
        let c = &self.spec.config;
        let h = c.hidden;
        Ok(LayerBuffers {
            input_norm: self.weight(&format!("{p}.input_layernorm.weight"), &[h])?,
            mixer: match mixer {
                Mixer::LinearAttention => {
                    MixerBuffers::DeltaNet(self.delta_net(p, &self.local.delta_net)?)
                }
                Mixer::FullAttention => {
                    MixerBuffers::Attention(self.attention(p, &self.local.attention)?)
                }
            },
            post_attention_norm: self
                .weight(&format!("{p}.post_attention_layernorm.weight"), &[h])?,
            moe: self.moe(p)?,
        })
    }

    fn delta_net(&mut self, p: &str, d: &DeltaNetConfig) -> Result<DeltaNetBuffers, BufferError> {
        let (h, m) = (self.spec.config.hidden, format!("{p}.linear_attn"));
        let (channels, values) = (d.channels(), d.value_heads * d.value_dim);
        let slots = self.capacity.state_slots;
        let ssm = [slots, d.value_heads, d.key_dim, d.value_dim];
        Ok(DeltaNetBuffers {
            in_proj_qkv: self.linear(&format!("{m}.in_proj_qkv"), &[channels, h])?,
            in_proj_z: self.linear(&format!("{m}.in_proj_z"), &[values, h])?,
            in_proj_b: self.linear(&format!("{m}.in_proj_b"), &[d.value_heads, h])?,
            in_proj_a: self.linear(&format!("{m}.in_proj_a"), &[d.value_heads, h])?,
            conv1d: self.weight(&format!("{m}.conv1d.weight"), &[channels, d.conv_width])?,
            a_log: self.weight(&format!("{m}.A_log"), &[d.value_heads])?,
            dt_bias: self.weight(&format!("{m}.dt_bias"), &[d.value_heads])?,
            norm: self.weight(&format!("{m}.norm.weight"), &[d.value_dim])?,
            out_proj: self.output_linear(
                &format!("{m}.out_proj"),
                h,
                values * self.split.tensor_ranks(),
            )?,
            conv_state: self.state(
                format!("{p}.conv_state"),
                &[slots, d.conv_width - 1, channels],
            )?,
            ssm_state: self.state(format!("{p}.ssm_state"), &ssm)?,
        })
    }

    fn attention(&mut self, p: &str, a: &AttentionConfig) -> Result<AttentionBuffers, BufferError> {
        let (h, m) = (self.spec.config.hidden, format!("{p}.self_attn"));
        let (q, kv) = (a.heads * a.head_dim, a.kv_heads * a.head_dim);
        let cache = [
            self.capacity.kv_pages,
            self.capacity.page_size,
            a.kv_heads,
            a.head_dim,
        ];
        Ok(AttentionBuffers {
            q_proj: self.linear(&format!("{m}.q_proj"), &[2 * q, h])?,
            k_proj: self.linear(&format!("{m}.k_proj"), &[kv, h])?,
            v_proj: self.linear(&format!("{m}.v_proj"), &[kv, h])?,
            o_proj: self.output_linear(&format!("{m}.o_proj"), h, q * self.split.tensor_ranks())?,
            q_norm: self.weight(&format!("{m}.q_norm.weight"), &[a.head_dim])?,
            k_norm: self.weight(&format!("{m}.k_norm.weight"), &[a.head_dim])?,
            k_cache: self.state(format!("{p}.k_cache"), &cache)?,
            v_cache: self.state(format!("{p}.v_cache"), &cache)?,
        })
    }

    fn moe(&mut self, p: &str) -> Result<MoeBuffers, BufferError> {
        let (h, e) = (self.spec.config.hidden, &self.local.moe);
        let (experts, cut) = (
            self.spec.config.moe.experts,
            self.split.expert_column_ranks(),
        );
        let (i, s, m) = (e.intermediate, e.shared_intermediate, format!("{p}.mlp"));
        Ok(MoeBuffers {
            gate: self.linear(&format!("{m}.gate"), &[experts, h])?,
            gate_up: self.linear(&format!("{m}.experts.gate_up_proj"), &[e.experts, 2 * i, h])?,
            down: self.linear(
                &format!("{m}.experts.down_proj"),
                &[e.experts, h / cut, i * cut],
            )?,
            shared_gate: self.linear(&format!("{m}.shared_expert_gate"), &[1, h])?,
            shared_gate_up: self.linear(&format!("{m}.shared_expert.gate_up_proj"), &[2 * s, h])?,
            shared_down: self.output_linear(
                &format!("{m}.shared_expert.down_proj"),
                h,
                s * self.split.tensor_ranks(),
            )?,
        })
    }

    fn mtp(&mut self) -> Result<MtpBuffers, BufferError> {
        let h = self.spec.config.hidden;
        Ok(MtpBuffers {
            norm_embedding: self.weight("mtp.pre_fc_norm_embedding.weight", &[h])?,
            norm_hidden: self.weight("mtp.pre_fc_norm_hidden.weight", &[h])?,
            fc: self.linear("mtp.fc", &[h, 2 * h])?,
            layer: self.layer("mtp.layers.0", Mixer::FullAttention)?,
            norm: self.weight("mtp.norm.weight", &[h])?,
        })
    }
}
