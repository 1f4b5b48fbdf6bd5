//! `quantization_config` of AMD Quark, checked as vLLM checks it before it computes W8A8 INT8:
//! per-channel symmetric static weights, per-token symmetric dynamic inputs. Everything else is
//! refused by field, since its int8 numbers would mean something else.
//!
//! Invariant: where a [`QuarkConfig`] exists, an int8 weight is `q * scale[row]` and nothing else.

use super::config::Section;
use super::error::CheckpointError;
use regex::{Regex, RegexBuilder};
use serde_json::Value;

/// A Quark W8A8 INT8 config.
#[derive(Clone, Debug)]
pub struct QuarkConfig {
    exclude: Vec<Exclude>,
}

/// A module that stays as it was, by name or by pattern.
#[derive(Clone, Debug)]
enum Exclude {
    Name(String),
    Pattern(Regex),
}

/// Linears that vLLM runs as one: either all of them are quantised or none.
const FUSED: [(&str, &[&str]); 4] = [
    ("qkv_proj", &["q_proj", "k_proj", "v_proj"]),
    ("gate_up_proj", &["gate_proj", "up_proj"]),
    ("in_proj_qkvz", &["in_proj_qkv", "in_proj_z"]),
    ("in_proj_ba", &["in_proj_b", "in_proj_a"]),
];

impl QuarkConfig {
    pub(crate) fn read(section: &Section) -> Result<QuarkConfig, CheckpointError> {
        require(section, "quant_method", &["quark".into()])?;
        check_export(&section.section("export")?)?;
        let global = section.section("global_quant_config")?;
        check_tensor(&global.section("weight")?, 0, false)?;
        check_tensor(&global.section("input_tensors")?, 1, true)?;
        global.one_of("output_tensors", &[])?;
        global.one_of("bias", &[])?;
        let empty = [Value::Object(Default::default())];
        section.one_of("layer_type_quant_config", &empty)?;
        section.one_of("layer_quant_config", &empty)?;
        section.one_of("kv_cache_quant_config", &empty)?;
        let exclude = read_exclude(section)?;
        Ok(QuarkConfig { exclude })
    }

    /// Whether a module (name as in the file, without `.weight`) is said to stay unquantised.
    pub fn excludes(&self, module: &str) -> bool {
        self.exclude.iter().any(|e| match e {
            Exclude::Name(name) => name == module,
            Exclude::Pattern(pattern) => pattern.is_match(module),
        })
    }

    /// Refuses an exclude list that tears apart what vLLM runs as one linear.
    pub(crate) fn check_fused(&self, modules: &[String]) -> Result<(), CheckpointError> {
        for module in modules {
            let Some((parent, name)) = module.rsplit_once('.') else {
                continue;
            };
            let fused = FUSED.iter().find(|(_, shards)| shards.contains(&name));
            let Some((fused, shards)) = fused else {
                continue;
            };
            let excluded = |shard: &&str| self.excludes(&format!("{parent}.{shard}"));
            let count = shards.iter().filter(|s| excluded(s)).count();
            if count != 0 && count != shards.len() {
                return Err(CheckpointError::config(
                    "config.json",
                    "quantization_config.exclude",
                    format!(
                        "names only some of {parent}.{{{}}}, which vLLM runs as one {fused}",
                        shards.join(",")
                    ),
                ));
            }
        }
        Ok(())
    }
}

fn check_export(export: &Section) -> Result<(), CheckpointError> {
    require(export, "pack_method", &["order".into(), "reorder".into()])?;
    require(export, "weight_format", &["real_quantized".into()])?;
    require(export, "kv_cache_group", &[Value::Array(Vec::new())])
}

fn check_tensor(tensor: &Section, axis: u64, dynamic: bool) -> Result<(), CheckpointError> {
    require(tensor, "dtype", &["int8".into()])?;
    require(tensor, "qscheme", &["per_channel".into()])?;
    tensor.one_of("ch_axis", &[axis.into()])?;
    require(tensor, "is_dynamic", &[dynamic.into()])?;
    require(tensor, "symmetric", &[true.into()])?;
    tensor.one_of("group_size", &[])
}

fn require(section: &Section, field: &str, allowed: &[Value]) -> Result<(), CheckpointError> {
    match section.get(field) {
        None => Err(section.missing(field)),
        Some(_) => section.one_of(field, allowed),
    }
}

/// Memory of one compiled pattern, at most: a few bytes of text can ask for any amount.
const MAX_PATTERN: usize = 1 << 18;

fn read_exclude(section: &Section) -> Result<Vec<Exclude>, CheckpointError> {
    let field = "exclude";
    let entries = match section.get(field) {
        None => return Ok(Vec::new()),
        Some(Value::Array(entries)) => entries,
        Some(other) => return Err(section.wrong(field, other, "a list of module names")),
    };
    let entry = |value: &Value| {
        let text = value
            .as_str()
            .ok_or_else(|| section.wrong(field, value, "a module name"))?;
        match text.strip_prefix("re:") {
            None => Ok(Exclude::Name(text.into())),
            // Python's re.match: anchored at the start only.
            Some(pattern) => RegexBuilder::new(&format!("^(?:{pattern})"))
                .size_limit(MAX_PATTERN)
                .build()
                .map(Exclude::Pattern)
                .map_err(|e| section.error(field, format!("{text}: {e}"))),
        }
    };
    entries.iter().map(entry).collect()
}
