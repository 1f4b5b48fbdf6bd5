//! What a `config.json` alone says of a model: enough to plan steps before 34 GiB have been fetched.

use super::config::Config;
use super::error::CheckpointError;
use super::parameters::{Kept, parameters};
use layerlet_core::plan::{LinearFormat, ModelSpec};
use std::path::Path;

impl Config {
    /// Reads the `config.json` of a folder.
    pub fn open(dir: &Path) -> Result<Config, CheckpointError> {
        let path = dir.join("config.json");
        let text = std::fs::read(&path).map_err(|e| CheckpointError::io(&path, e))?;
        let mut config = Config::parse(&text)?;
        config.read_generation_config(dir)?;
        Ok(config)
    }

    /// The model that the config announces: W8A8 are the linears that its quantisation does not exclude.
    /// Where there are files, they decide: [`Checkpoint::spec`](super::Checkpoint::spec).
    pub fn announced_spec(&self) -> ModelSpec {
        let linears = parameters(&self.model).filter(|p| p.kept == Kept::Linear);
        let formats = linears.filter_map(|parameter| {
            let quark = self.quantization.as_ref()?;
            let first = parameter.split().next()?;
            let module = first
                .tensor
                .strip_suffix(".weight")
                .unwrap_or(&first.tensor);
            let excluded = ["", "model.", "model.language_model."]
                .iter()
                .any(|prefix| quark.excludes(&format!("{prefix}{module}")));
            (!excluded).then(|| (parameter.module.clone(), LinearFormat::W8A8))
        });
        ModelSpec {
            config: self.model.clone(),
            formats: formats.collect(),
        }
    }
}
