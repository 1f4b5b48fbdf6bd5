//! `config.json` of the output: the input's, in the shape of the released checkpoints, with the
//! quantisation.

use crate::checkpoint::Checkpoint;
use crate::output::quantization_config;
use serde_json::{Map, Value, json};

/// The config of the quantised copy.
pub fn config(checkpoint: &Checkpoint) -> Map<String, Value> {
    let mut config = nested(checkpoint.config.json.clone());
    let vision = !checkpoint.vision().is_empty();
    let quantization = quantization_config(&checkpoint.config.model, vision);
    config.insert("quantization_config".into(), quantization);
    config
}

/// Text tensors are written below `model.language_model.`, so the config is the outer one too.
fn nested(json: Map<String, Value>) -> Map<String, Value> {
    if json.contains_key("text_config") {
        return json;
    }
    let mut outer = Map::new();
    let architectures = json!(["Qwen3_5MoeForConditionalGeneration"]);
    outer.insert("architectures".into(), architectures);
    outer.insert("model_type".into(), "qwen3_5_moe".into());
    let tied = json.get("tie_word_embeddings").cloned();
    outer.insert("tie_word_embeddings".into(), tied.unwrap_or(false.into()));
    outer.insert("text_config".into(), Value::Object(json));
    outer
}
