//! A checkpoint on disk: transformers' layout of safetensors with `config.json`, in bf16 or Quark W8A8
//! INT8.
//!
//! Opening maps the files and settles from their headers alone which tensor fills which parameter;
//! bytes are read when they are loaded.
//!
//! Invariants: after [`Checkpoint::open`] nothing can be missing, doubled, unknown or of the wrong
//! shape; every refusal names the file; whatever the files say, memory stays in proportion to their
//! headers.

mod announced;
mod config;
mod error;
mod file;
mod folder;
mod load;
mod mapping;
mod parameters;
mod quark;
mod resolve;
mod sampling;
mod values;

pub use config::Config;
pub use error::CheckpointError;
pub use file::{TensorFile, TensorInfo};
pub use folder::{INDEX, SINGLE, TensorFiles, TensorRef};
pub use mapping::Bytes;
pub use parameters::{Kept, Parameter, Part, parameters};
pub use quark::QuarkConfig;
pub use resolve::{Piece, Stored, Weight};
pub use values::widened;

use resolve::Resolver;
use std::path::Path;

/// A checkpoint whose every tensor has its place.
pub struct Checkpoint {
    /// What the model is; `mtp_layers` follows the files.
    pub config: Config,
    files: TensorFiles,
    weights: Vec<Weight>,
    vision: Vec<TensorRef>,
    notes: Vec<String>,
}

impl Checkpoint {
    /// Opens a folder with `config.json` and its safetensors.
    pub fn open(dir: &Path) -> Result<Checkpoint, CheckpointError> {
        Checkpoint::new(Config::open(dir)?, TensorFiles::open(dir)?)
    }

    /// Settles which tensor fills which parameter.
    pub fn new(mut config: Config, files: TensorFiles) -> Result<Checkpoint, CheckpointError> {
        let mut resolver = Resolver::new(&files)?;
        let mut notes = Vec::new();
        settle_mtp(&mut config, &resolver, &mut notes);
        if config.model.tied_embeddings && resolver.take_tied_head()? {
            notes.push("lm_head.weight repeats the embedding it is tied to; skipped".into());
        }
        let weights = parameters(&config.model)
            .map(|parameter| resolver.weight(parameter))
            .collect::<Result<Vec<_>, _>>()?;
        let vision = resolver.finish()?;
        check_quantization(&config, &files, &weights, &mut notes)?;
        Ok(Checkpoint {
            config,
            files,
            weights,
            vision,
            notes,
        })
    }

    /// The files and their tensors.
    pub fn files(&self) -> &TensorFiles {
        &self.files
    }

    /// Every parameter with the tensors that fill it.
    pub fn weights(&self) -> &[Weight] {
        &self.weights
    }

    /// Tensors of the vision tower, which are not loaded.
    pub fn vision(&self) -> &[TensorRef] {
        &self.vision
    }

    /// What is unusual but harmless.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// The files decide whether there is a prediction head; a part of one is refused later by name.
fn settle_mtp(config: &mut Config, resolver: &Resolver, notes: &mut Vec<String>) {
    let announced = config.model.mtp_layers;
    config.model.mtp_layers = usize::from(resolver.has_mtp());
    if announced != config.model.mtp_layers {
        notes.push(format!(
            "mtp_num_hidden_layers is {announced}, the files hold {} (mtp.*)",
            config.model.mtp_layers
        ));
    }
}

/// int8 has a meaning only where the config gives it one. Where the config's exclude list and the files
/// disagree the files are right (they hold the scales), but other loaders may refuse them: noted.
fn check_quantization(
    config: &Config,
    files: &TensorFiles,
    weights: &[Weight],
    notes: &mut Vec<String>,
) -> Result<(), CheckpointError> {
    let linears = weights.iter().filter(|w| w.parameter.kept == Kept::Linear);
    let mut modules = Vec::new();
    let (mut torn, mut plain) = (Vec::new(), Vec::new());
    for weight in linears {
        for piece in &weight.pieces {
            let name = &files.info(piece.weight).name;
            let module = name.strip_suffix(".weight").unwrap_or(name).to_string();
            let Some(quark) = &config.quantization else {
                match weight.stored {
                    Stored::Float => continue,
                    Stored::Int8 => {
                        let problem = "is int8, but config.json has no quantization_config";
                        return Err(files.error(piece.weight, problem));
                    }
                }
            };
            match (weight.stored, quark.excludes(&module)) {
                (Stored::Int8, true) => torn.push(module.clone()),
                (Stored::Float, false) => plain.push(module.clone()),
                _ => {}
            }
            modules.push(module);
        }
    }
    if let Some(quark) = &config.quantization {
        quark.check_fused(&modules)?;
    }
    note_modules(
        notes,
        &torn,
        "are int8 although quantization_config excludes them",
    );
    note_modules(
        notes,
        &plain,
        "are not int8 although quantization_config does not exclude them",
    );
    Ok(())
}

fn note_modules(notes: &mut Vec<String>, modules: &[String], what: &str) {
    if let Some(first) = modules.first() {
        notes.push(format!("{} modules {what} (first: {first})", modules.len()));
    }
}
