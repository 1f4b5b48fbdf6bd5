//! `generation_config.json`: how a checkpoint wants its tokens drawn, in the words of transformers.

use super::config::Section;
use super::error::CheckpointError;
use layerlet_core::plan::{SamplingParams, StepError};
use serde_json::Value;

/// Greedy unless `do_sample` is true; what is absent is off, whatever transformers' own default is.
pub(crate) fn sampling(section: &Section) -> Result<SamplingParams, CheckpointError> {
    let off = SamplingParams::default();
    let number = |field, default: f32| match section.get(field) {
        None => Ok(default),
        Some(_) => section.number(field).map(|x| x as f32),
    };
    let params = SamplingParams {
        temperature: match do_sample(section)? {
            true => number("temperature", 1.0)?,
            false => 0.0,
        },
        top_k: top_k(section)?,
        top_p: number("top_p", off.top_p)?,
        min_p: number("min_p", off.min_p)?,
        repetition_penalty: number("repetition_penalty", off.repetition_penalty)?,
        ..off
    };
    match params.validate() {
        Ok(()) => Ok(params),
        Err(StepError::Sampling {
            parameter,
            found,
            expected,
        }) => Err(section.error(parameter, format!("is {found}, expected {expected}"))),
        Err(other) => Err(section.error("do_sample", other.to_string())),
    }
}

fn do_sample(section: &Section) -> Result<bool, CheckpointError> {
    let field = "do_sample";
    match section.get(field) {
        None => Ok(false),
        Some(Value::Bool(sampled)) => Ok(*sampled),
        Some(other) => Err(section.wrong(field, other, "true or false")),
    }
}

fn top_k(section: &Section) -> Result<u32, CheckpointError> {
    let field = "top_k";
    let Some(value) = section.get(field) else {
        return Ok(SamplingParams::default().top_k);
    };
    let k = value.as_u64().and_then(|k| u32::try_from(k).ok());
    k.ok_or_else(|| section.wrong(field, value, "a number of tokens; 0 is off"))
}
