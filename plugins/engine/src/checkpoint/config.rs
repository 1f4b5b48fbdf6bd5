//! `config.json`: what the model is, in the words of transformers.
//!
//! A field that changes what is computed is required, or has the one value this family can have; a
//! field that says something else is refused by name. Defaults of transformers' config class are not
//! used: the checkpoints differ from them.
//!
//! Invariant: a [`Config`] has passed `ModelConfig::validate`, and every refusal names file and field.

use super::error::CheckpointError;
use super::quark::QuarkConfig;
use super::sampling::sampling;
use layerlet_core::config::{AttentionConfig, DeltaNetConfig, Mixer, ModelConfig, MoeConfig};
use layerlet_core::plan::SamplingParams;
use serde_json::{Map, Value};
use std::path::Path;

const FILE: &str = "config.json";

/// What a checkpoint's config says.
#[derive(Clone, Debug)]
pub struct Config {
    /// The text model. `mtp_layers` is what the config announces; the files decide.
    pub model: ModelConfig,
    /// How int8 weights are meant, if there are any.
    pub quantization: Option<QuarkConfig>,
    /// Tokens that end a text.
    pub eos: Vec<u32>,
    /// How tokens are meant to be drawn; greedily where nothing says otherwise.
    pub sampling: SamplingParams,
    /// The config as read.
    pub json: Map<String, Value>,
}

impl Config {
    /// Reads the text of a `config.json`.
    pub fn parse(text: &[u8]) -> Result<Config, CheckpointError> {
        let json: Map<String, Value> =
            serde_json::from_slice(text).map_err(|e| CheckpointError::file(FILE, e.to_string()))?;
        let top = Section::top(FILE, &json);
        let text = match json.get("text_config") {
            Some(_) => top.section("text_config")?,
            None => top.clone(),
        };
        let model = read_model(&top, &text)?;
        model.validate().map_err(|e| {
            CheckpointError::config(
                FILE,
                e.field,
                format!("is {}, expected {}", e.found, e.expected),
            )
        })?;
        let quantization = match json.get("quantization_config").filter(|q| !q.is_null()) {
            Some(_) => Some(QuarkConfig::read(&top.section("quantization_config")?)?),
            None => None,
        };
        let mut eos = eos_ids(&top)?;
        eos.extend(eos_ids(&text)?);
        eos.sort_unstable();
        eos.dedup();
        Ok(Config {
            model,
            quantization,
            eos,
            sampling: SamplingParams::default(),
            json,
        })
    }

    /// Adds the end tokens of `generation_config.json` and takes its sampling, where there is one.
    pub(crate) fn read_generation_config(&mut self, dir: &Path) -> Result<(), CheckpointError> {
        let name = "generation_config.json";
        let path = dir.join(name);
        if !path.exists() {
            return Ok(());
        }
        let text = std::fs::read(&path).map_err(|e| CheckpointError::io(&path, e))?;
        let json: Map<String, Value> = serde_json::from_slice(&text)
            .map_err(|e| CheckpointError::file(name, e.to_string()))?;
        let section = Section::top(name, &json);
        self.sampling = sampling(&section)?;
        self.eos.extend(eos_ids(&section)?);
        self.eos.sort_unstable();
        self.eos.dedup();
        Ok(())
    }
}

/// Ids that end a text: `eos_token_id`, one or a list.
pub(crate) fn eos_ids(section: &Section) -> Result<Vec<u32>, CheckpointError> {
    let field = "eos_token_id";
    let id = |v: &Value| {
        let id = v.as_u64().and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| section.wrong(field, v, "a token id or a list of them"))
    };
    match section.get(field) {
        None => Ok(Vec::new()),
        Some(Value::Array(list)) => list.iter().map(id).collect(),
        Some(one) => Ok(vec![id(one)?]),
    }
}

fn read_model(top: &Section, text: &Section) -> Result<ModelConfig, CheckpointError> {
    check_fixed(top, text)?;
    let rope = Rope::read(text)?;
    let head_dim = text.size("head_dim")?;
    let mtp_layers = text.size_or("mtp_num_hidden_layers", 0)?;
    Ok(ModelConfig {
        hidden: text.size("hidden_size")?,
        vocab: text.size("vocab_size")?,
        layers: read_layers(text)?,
        attention: AttentionConfig {
            heads: text.size("num_attention_heads")?,
            kv_heads: text.size("num_key_value_heads")?,
            head_dim,
            rotary_dim: rope.rotary_dim(text, head_dim)?,
            rope_theta: rope.theta,
        },
        delta_net: DeltaNetConfig {
            key_heads: text.size("linear_num_key_heads")?,
            value_heads: text.size("linear_num_value_heads")?,
            key_dim: text.size("linear_key_head_dim")?,
            value_dim: text.size("linear_value_head_dim")?,
            conv_width: text.size("linear_conv_kernel_dim")?,
        },
        moe: MoeConfig {
            experts: text.size("num_experts")?,
            top_k: text.size("num_experts_per_tok")?,
            intermediate: text.size("moe_intermediate_size")?,
            shared_intermediate: text.size("shared_expert_intermediate_size")?,
        },
        rms_norm_eps: text.number("rms_norm_eps")? as f32,
        max_position: text.size("max_position_embeddings")?,
        mtp_layers,
        tied_embeddings: tied(top, text)?,
    })
}

/// The outer config decides where there are two, as in transformers.
fn tied(top: &Section, text: &Section) -> Result<bool, CheckpointError> {
    let field = "tie_word_embeddings";
    let section = if top.get(field).is_some() { top } else { text };
    match section.get(field) {
        None => Ok(false),
        Some(Value::Bool(tied)) => Ok(*tied),
        Some(other) => Err(section.wrong(field, other, "true or false")),
    }
}

/// Fields of which this family has one value; anything else would be another computation.
fn check_fixed(top: &Section, text: &Section) -> Result<(), CheckpointError> {
    let kinds = ["qwen3_5_moe", "qwen3_5_moe_text"];
    for section in [top, text] {
        section.one_of("model_type", &kinds.map(Value::from))?;
        section.one_of("rope_scaling", &[])?;
    }
    if text.get("model_type").is_none() {
        return Err(text.missing("model_type"));
    }
    let no = [Value::Bool(false)];
    let yes = [Value::Bool(true)];
    text.one_of("hidden_act", &["silu".into()])?;
    text.one_of("attention_bias", &no)?;
    text.one_of("attn_output_gate", &yes)?;
    text.one_of("output_gate_type", &["swish".into(), "silu".into()])?;
    text.one_of("mamba_ssm_dtype", &["float32".into()])?;
    text.one_of("norm_topk_prob", &yes)?;
    text.one_of("decoder_sparse_step", &[1.into()])?;
    text.one_of("mlp_only_layers", &[Value::Array(Vec::new())])?;
    text.one_of("mtp_use_dedicated_embeddings", &no)
}

/// More layers than any model has. The config alone sizes the list of layers, before a file could
/// contradict it.
const MAX_LAYERS: usize = 512;

fn read_layers(text: &Section) -> Result<Vec<Mixer>, CheckpointError> {
    let field = "num_hidden_layers";
    let count = text.size(field)?;
    if count > MAX_LAYERS {
        return Err(text.error(field, format!("is {count}, expected at most {MAX_LAYERS}")));
    }
    let interval = match text.get("full_attention_interval") {
        Some(_) => Some(text.size("full_attention_interval")?),
        None => None,
    };
    let by_interval = |interval: usize, i: usize| match (i + 1).is_multiple_of(interval) {
        true => Mixer::FullAttention,
        false => Mixer::LinearAttention,
    };
    let Some(types) = text.get("layer_types") else {
        let interval = interval.ok_or_else(|| text.missing("layer_types"))?;
        return Ok((0..count).map(|i| by_interval(interval, i)).collect());
    };
    let layers = match types {
        Value::Array(types) => types.iter().map(mixer).collect::<Option<Vec<_>>>(),
        _ => None,
    };
    let layers = layers.ok_or_else(|| {
        let expected = "a list of linear_attention and full_attention";
        text.wrong("layer_types", types, expected)
    })?;
    if layers.len() != count {
        let problem = format!("has {} entries, num_hidden_layers is {count}", layers.len());
        return Err(text.error("layer_types", problem));
    }
    let disagrees = |interval| (0..count).find(|&i| layers[i] != by_interval(interval, i));
    match interval.and_then(disagrees) {
        Some(i) => Err(text.error(
            "full_attention_interval",
            format!("disagrees with layer_types at layer {i}"),
        )),
        None => Ok(layers),
    }
}

fn mixer(kind: &Value) -> Option<Mixer> {
    match kind.as_str()? {
        "linear_attention" => Some(Mixer::LinearAttention),
        "full_attention" => Some(Mixer::FullAttention),
        _ => None,
    }
}

/// RoPE's numbers, which stand in `rope_parameters` or, in older configs, beside the sizes.
struct Rope {
    theta: f64,
    partial: f64,
}

impl Rope {
    fn read(text: &Section) -> Result<Rope, CheckpointError> {
        let mut places = vec![text.clone()];
        if text.get("rope_parameters").is_some() {
            let nested = text.section("rope_parameters")?;
            nested.one_of("rope_type", &["default".into()])?;
            places.push(nested);
        }
        Ok(Rope {
            theta: agreed(&places, "rope_theta")?,
            partial: agreed(&places, "partial_rotary_factor")?,
        })
    }

    fn rotary_dim(&self, text: &Section, head_dim: usize) -> Result<usize, CheckpointError> {
        let dims = head_dim as f64 * self.partial;
        if dims < 0.0 || dims > head_dim as f64 || dims.fract() != 0.0 {
            let problem = format!(
                "{} of head_dim {head_dim} is no number of dims",
                self.partial
            );
            return Err(text.error("partial_rotary_factor", problem));
        }
        Ok(dims as usize)
    }
}

/// A number that may stand in several places, but must be there and the same everywhere.
fn agreed(places: &[Section], field: &str) -> Result<f64, CheckpointError> {
    let mut found: Option<f64> = None;
    for place in places.iter().filter(|p| p.get(field).is_some()) {
        let value = place.number(field)?;
        if found.is_some_and(|other| other != value) {
            let problem = format!("is {value} here and {} elsewhere", found.unwrap_or(value));
            return Err(place.error(field, problem));
        }
        found = Some(value);
    }
    found.ok_or_else(|| places[0].missing(field))
}

/// An object of a config, which knows its path for messages.
#[derive(Clone)]
pub(crate) struct Section<'a> {
    file: &'static str,
    path: String,
    object: &'a Map<String, Value>,
}

impl<'a> Section<'a> {
    pub(crate) fn top(file: &'static str, object: &'a Map<String, Value>) -> Section<'a> {
        Section {
            file,
            path: String::new(),
            object,
        }
    }

    /// A nested object that must be there.
    pub(crate) fn section(&self, name: &str) -> Result<Section<'a>, CheckpointError> {
        match self.object.get(name) {
            Some(Value::Object(object)) => Ok(Section {
                file: self.file,
                path: self.path_of(name),
                object,
            }),
            Some(other) => Err(self.wrong(name, other, "an object")),
            None => Err(self.missing(name)),
        }
    }

    /// A field that is there and not null.
    pub(crate) fn get(&self, field: &str) -> Option<&'a Value> {
        self.object.get(field).filter(|v| !v.is_null())
    }

    pub(crate) fn size(&self, field: &str) -> Result<usize, CheckpointError> {
        let value = self.get(field).ok_or_else(|| self.missing(field))?;
        let size = value.as_u64().filter(|s| (1..=1 << 24).contains(s));
        size.map(|s| s as usize)
            .ok_or_else(|| self.wrong(field, value, "an integer from 1 to 16,777,216"))
    }

    fn size_or(&self, field: &str, default: usize) -> Result<usize, CheckpointError> {
        match self.get(field) {
            None => Ok(default),
            Some(value) if value.as_u64() == Some(0) => Ok(0),
            Some(_) => self.size(field),
        }
    }

    pub(crate) fn number(&self, field: &str) -> Result<f64, CheckpointError> {
        let value = self.get(field).ok_or_else(|| self.missing(field))?;
        value
            .as_f64()
            .ok_or_else(|| self.wrong(field, value, "a number"))
    }

    /// A field that may be absent or null, or must have one of these values.
    pub(crate) fn one_of(&self, field: &str, allowed: &[Value]) -> Result<(), CheckpointError> {
        match self.get(field) {
            Some(value) if !allowed.contains(value) => {
                let words: Vec<String> = allowed.iter().map(|v| v.to_string()).collect();
                let expected = match words.is_empty() {
                    true => "null".to_string(),
                    false => words.join(" or "),
                };
                Err(self.wrong(field, value, &expected))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn missing(&self, field: &str) -> CheckpointError {
        self.error(field, "is missing")
    }

    pub(crate) fn wrong(&self, field: &str, found: &Value, expected: &str) -> CheckpointError {
        self.error(
            field,
            format!("is {}, expected {expected}", shortened(found)),
        )
    }

    pub(crate) fn error(&self, field: &str, problem: impl Into<String>) -> CheckpointError {
        CheckpointError::config(self.file, &self.path_of(field), problem)
    }

    fn path_of(&self, field: &str) -> String {
        match self.path.as_str() {
            "" => field.to_string(),
            path => format!("{path}.{field}"),
        }
    }
}

fn shortened(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
