//! What a checkpoint of a config must hold: every parameter of the model, with the tensors of a file
//! that fill it.
//!
//! Names here are canonical (as in the model's buffers): without `model.` or
//! `model.language_model.`, and with `gate_proj` and `up_proj` already one linear.
//!
//! Invariants: the parts of a parameter have together its shape, in order of rows; a buffer of the
//! model's table is named by one parameter only.

use layerlet_core::config::{Mixer, ModelConfig};

/// How a parameter is kept for the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// A linear: bf16, or int8 codes with one f32 scale a row.
    Linear,
    /// bf16 whatever the rest is: embedding and head.
    Bf16,
    /// Norms, convolution, gates: widened to f32.
    F32,
}

/// A parameter of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Name of the module; its buffer's is [`Parameter::buffer`].
    pub module: String,
    /// How it is kept.
    pub kept: Kept,
    /// Shape of its buffer.
    pub shape: Vec<usize>,
    parts: Parts,
}

/// A tensor of a file that fills rows of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Name without prefix; `.weight` included where there is one.
    pub tensor: String,
    /// Shape in the file.
    pub shape: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Parts {
    /// One tensor, of this name and shape.
    One(Part),
    /// `gate_proj`, then `up_proj`, below this module.
    GateUp(String),
    /// Experts below this module: one fused tensor, or these linears of every expert.
    Experts(String, &'static [&'static str]),
}

impl Parameter {
    fn linear(module: String, rows: usize, columns: usize) -> Parameter {
        let part = Part {
            tensor: format!("{module}.weight"),
            shape: vec![rows, columns],
        };
        Parameter {
            module,
            kept: Kept::Linear,
            shape: vec![rows, columns],
            parts: Parts::One(part),
        }
    }

    fn bf16(module: &str, rows: usize, columns: usize) -> Parameter {
        Parameter {
            kept: Kept::Bf16,
            ..Parameter::linear(module.into(), rows, columns)
        }
    }

    /// A vector, or the convolution, whose file shape has a 1 in the middle.
    fn f32(module: String, suffix: &str, shape: &[usize], in_file: &[usize]) -> Parameter {
        let part = Part {
            tensor: format!("{module}{suffix}"),
            shape: in_file.to_vec(),
        };
        Parameter {
            module,
            kept: Kept::F32,
            shape: shape.to_vec(),
            parts: Parts::One(part),
        }
    }

    /// Name of its buffer in the model's table.
    pub fn buffer(&self) -> String {
        match &self.parts {
            Parts::One(part) => part.tensor.clone(),
            _ => format!("{}.weight", self.module),
        }
    }

    /// Name of the buffer with the scales of a W8A8 linear.
    pub fn scale_buffer(&self) -> String {
        format!("{}.weight_scale", self.module)
    }

    /// Columns of a linear.
    pub fn columns(&self) -> usize {
        self.shape[self.shape.len() - 1]
    }

    /// The one tensor that may hold all of it.
    pub fn whole(&self) -> Option<Part> {
        match &self.parts {
            Parts::One(part) => Some(part.clone()),
            Parts::GateUp(_) => None,
            Parts::Experts(..) => Some(Part {
                tensor: self.module.clone(),
                shape: self.shape.clone(),
            }),
        }
    }

    /// The tensors that hold it together, in order of rows. Lazy: a config may name any number of
    /// experts, the files need not have them.
    pub fn split(&self) -> Box<dyn Iterator<Item = Part> + '_> {
        let shape = |rows| vec![rows, self.columns()];
        match &self.parts {
            Parts::One(part) => Box::new(std::iter::once(part.clone())),
            Parts::GateUp(parent) => {
                let half = self.shape[0] / 2;
                Box::new(["gate_proj", "up_proj"].into_iter().map(move |name| Part {
                    tensor: format!("{parent}.{name}.weight"),
                    shape: shape(half),
                }))
            }
            Parts::Experts(parent, names) => {
                let rows = self.shape[1] / names.len();
                Box::new((0..self.shape[0]).flat_map(move |expert| {
                    names.iter().map(move |name| Part {
                        tensor: format!("{parent}.{expert}.{name}.weight"),
                        shape: shape(rows),
                    })
                }))
            }
        }
    }
}

/// Every parameter of a model, in order of the forward pass. Lazy by layer, so that a config which
/// announces more layers than the files hold costs no memory.
pub fn parameters(config: &ModelConfig) -> impl Iterator<Item = Parameter> {
    let (vocab, hidden) = (config.vocab, config.hidden);
    let embedding = std::iter::once(Parameter::bf16("embed_tokens", vocab, hidden));
    let layers = config.layers.iter().enumerate().flat_map(|(i, mixer)| {
        let mut all = Vec::new();
        layer(config, &format!("layers.{i}"), *mixer, &mut all);
        all
    });
    let mut rest = vec![norm("norm".into(), hidden)];
    if !config.tied_embeddings {
        rest.push(Parameter::bf16("lm_head", vocab, hidden));
    }
    if config.mtp_layers > 0 {
        mtp(config, &mut rest);
    }
    embedding.chain(layers).chain(rest)
}

fn norm(module: String, width: usize) -> Parameter {
    Parameter::f32(module, ".weight", &[width], &[width])
}

fn mtp(config: &ModelConfig, all: &mut Vec<Parameter>) {
    let hidden = config.hidden;
    all.push(Parameter::linear("mtp.fc".into(), hidden, 2 * hidden));
    for name in ["norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"] {
        all.push(norm(format!("mtp.{name}"), hidden));
    }
    for i in 0..config.mtp_layers {
        layer(
            config,
            &format!("mtp.layers.{i}"),
            Mixer::FullAttention,
            all,
        );
    }
}

fn layer(config: &ModelConfig, at: &str, mixer: Mixer, all: &mut Vec<Parameter>) {
    all.push(norm(format!("{at}.input_layernorm"), config.hidden));
    match mixer {
        Mixer::LinearAttention => linear_attention(config, &format!("{at}.linear_attn"), all),
        Mixer::FullAttention => self_attention(config, &format!("{at}.self_attn"), all),
    }
    all.push(norm(
        format!("{at}.post_attention_layernorm"),
        config.hidden,
    ));
    mlp(config, &format!("{at}.mlp"), all);
}

fn linear_attention(config: &ModelConfig, at: &str, all: &mut Vec<Parameter>) {
    let (d, hidden) = (&config.delta_net, config.hidden);
    let (channels, heads) = (d.channels(), d.value_heads);
    let values = heads * d.value_dim;
    let inputs = [
        ("in_proj_qkv", channels),
        ("in_proj_z", values),
        ("in_proj_b", heads),
        ("in_proj_a", heads),
    ];
    for (name, rows) in inputs {
        all.push(Parameter::linear(format!("{at}.{name}"), rows, hidden));
    }
    let width = d.conv_width;
    all.push(Parameter::f32(
        format!("{at}.conv1d"),
        ".weight",
        &[channels, width],
        &[channels, 1, width],
    ));
    for name in ["A_log", "dt_bias"] {
        all.push(Parameter::f32(
            format!("{at}.{name}"),
            "",
            &[heads],
            &[heads],
        ));
    }
    all.push(norm(format!("{at}.norm"), d.value_dim));
    all.push(Parameter::linear(format!("{at}.out_proj"), hidden, values));
}

fn self_attention(config: &ModelConfig, at: &str, all: &mut Vec<Parameter>) {
    let (a, hidden) = (&config.attention, config.hidden);
    let (queries, keys) = (a.heads * a.head_dim, a.kv_heads * a.head_dim);
    // Every head's query rows are followed by its gate rows.
    for (name, rows) in [("q_proj", 2 * queries), ("k_proj", keys), ("v_proj", keys)] {
        all.push(Parameter::linear(format!("{at}.{name}"), rows, hidden));
    }
    all.push(norm(format!("{at}.q_norm"), a.head_dim));
    all.push(norm(format!("{at}.k_norm"), a.head_dim));
    all.push(Parameter::linear(format!("{at}.o_proj"), hidden, queries));
}

fn mlp(config: &ModelConfig, at: &str, all: &mut Vec<Parameter>) {
    let (m, hidden) = (&config.moe, config.hidden);
    all.push(Parameter::linear(format!("{at}.gate"), m.experts, hidden));
    all.push(Parameter::linear(
        format!("{at}.shared_expert_gate"),
        1,
        hidden,
    ));
    let shared = format!("{at}.shared_expert");
    all.push(Parameter {
        module: format!("{shared}.gate_up_proj"),
        kept: Kept::Linear,
        shape: vec![2 * m.shared_intermediate, hidden],
        parts: Parts::GateUp(shared.clone()),
    });
    let down = format!("{shared}.down_proj");
    all.push(Parameter::linear(down, hidden, m.shared_intermediate));
    let experts = format!("{at}.experts");
    let gate_up: &[&str] = &["gate_proj", "up_proj"];
    let linears = [
        ("gate_up_proj", 2 * m.intermediate, hidden, gate_up),
        ("down_proj", hidden, m.intermediate, &["down_proj"]),
    ];
    for (name, rows, columns, parts) in linears {
        all.push(Parameter {
            module: format!("{experts}.{name}"),
            kept: Kept::Linear,
            shape: vec![m.experts, rows, columns],
            parts: Parts::Experts(experts.clone(), parts),
        });
    }
}
