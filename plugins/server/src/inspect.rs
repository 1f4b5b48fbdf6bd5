//! `layerlet inspect`.

use crate::error::CommandError;
use crate::format;
use layerlet_core::config::{Mixer, ModelConfig};
use layerlet_engine::Tokenizer;
use layerlet_engine::checkpoint::{Checkpoint, Kept, Stored, Weight};
use serde::Serialize;
use std::path::PathBuf;

/// Opens a checkpoint as the other commands do: every parameter must be filled exactly once.
#[derive(clap::Args)]
#[command(after_help = "Example: layerlet inspect DIR --tensors | grep experts")]
pub struct Args {
    /// Folder of the checkpoint
    model: PathBuf,
    /// List every parameter
    #[arg(long)]
    tensors: bool,
    /// JSON on stdout
    #[arg(long)]
    json: bool,
}

/// Everything that is printed, in either form.
#[derive(Serialize)]
struct Summary {
    files: Vec<String>,
    config: ModelConfig,
    eos: Vec<u32>,
    tokenizer: bool,
    parameters: u64,
    formats: Vec<FormatSum>,
    skipped_vision_tensors: usize,
    notes: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tensors: Vec<TensorLine>,
}

#[derive(Serialize)]
struct FormatSum {
    format: &'static str,
    tensors: usize,
    parameters: u64,
    /// In a backend's memory, scales included.
    bytes: u64,
}

#[derive(Serialize)]
struct TensorLine {
    name: String,
    format: &'static str,
    shape: Vec<usize>,
    /// Tensors of the files that fill it.
    from: usize,
}

pub fn run(args: &Args) -> Result<(), CommandError> {
    let checkpoint = Checkpoint::open(&args.model)?;
    let summary = summary(&checkpoint, args)?;
    match args.json {
        true => format::json(&summary),
        false => print(&summary),
    }
}

fn format_of(weight: &Weight) -> &'static str {
    match (weight.stored, weight.parameter.kept) {
        (Stored::Int8, _) => "w8a8",
        (Stored::Float, Kept::F32) => "f32",
        (Stored::Float, _) => "bf16",
    }
}

fn elements(weight: &Weight) -> u64 {
    weight.parameter.shape.iter().map(|n| *n as u64).product()
}

fn bytes(weight: &Weight) -> u64 {
    let n = elements(weight);
    match (weight.stored, weight.parameter.kept) {
        (Stored::Int8, _) => n + 4 * (n / weight.parameter.columns() as u64),
        (Stored::Float, Kept::F32) => 4 * n,
        (Stored::Float, _) => 2 * n,
    }
}

fn summary(checkpoint: &Checkpoint, args: &Args) -> Result<Summary, CommandError> {
    let weights = checkpoint.weights();
    let sum = |format: &'static str| {
        let mine: Vec<&Weight> = weights.iter().filter(|w| format_of(w) == format).collect();
        FormatSum {
            format,
            tensors: mine.len(),
            parameters: mine.iter().map(|w| elements(w)).sum(),
            bytes: mine.iter().map(|w| bytes(w)).sum(),
        }
    };
    let line = |w: &Weight| TensorLine {
        name: w.parameter.buffer(),
        format: format_of(w),
        shape: w.parameter.shape.clone(),
        from: w.pieces.len(),
    };
    let listed = weights.iter().filter(|_| args.tensors);
    Ok(Summary {
        files: checkpoint.files().files().map(String::from).collect(),
        config: checkpoint.config.model.clone(),
        eos: checkpoint.config.eos.clone(),
        tokenizer: Tokenizer::open(&args.model)?.is_some(),
        parameters: weights.iter().map(elements).sum(),
        formats: ["w8a8", "bf16", "f32"].map(sum).into(),
        skipped_vision_tensors: checkpoint.vision().len(),
        notes: checkpoint.notes().to_vec(),
        tensors: listed.map(line).collect(),
    })
}

fn print(summary: &Summary) -> Result<(), CommandError> {
    let formats = summary.formats.iter().map(|f| {
        vec![
            f.format.into(),
            f.tensors.to_string(),
            f.parameters.to_string(),
            format::bytes(f.bytes),
        ]
    });
    let header = ["format", "tensors", "parameters", "in memory"];
    format::line(&about(&summary.config))?;
    format::line(&format!(
        "{} parameters in {}; {}; ends at {:?}",
        summary.parameters,
        summary.files.join(", "),
        if summary.tokenizer {
            "tokenizer.json"
        } else {
            "no tokenizer"
        },
        summary.eos,
    ))?;
    format::line(&format::table(&header, 1, formats).to_string())?;
    if summary.skipped_vision_tensors > 0 {
        let n = summary.skipped_vision_tensors;
        format::line(&format!("skipped: {n} tensors of the vision tower"))?;
    }
    for note in &summary.notes {
        format::line(&format!("note: {note}"))?;
    }
    if !summary.tensors.is_empty() {
        let rows = summary.tensors.iter().map(|t| {
            vec![
                t.name.clone(),
                t.format.into(),
                format!("{:?}", t.shape),
                t.from.to_string(),
            ]
        });
        let header = ["parameter", "format", "shape", "from tensors"];
        format::line(&format::table(&header, 3, rows).to_string())?;
    }
    Ok(())
}

fn about(config: &ModelConfig) -> String {
    let attention = config
        .layers
        .iter()
        .filter(|m| **m == Mixer::FullAttention)
        .count();
    format!(
        "{} layers ({} gated delta net, {attention} attention), hidden {}, vocabulary {}, {} of {} experts, \
         {} positions, {} prediction layers",
        config.layers.len(),
        config.layers.len() - attention,
        config.hidden,
        config.vocab,
        config.moe.top_k,
        config.moe.experts,
        config.max_position,
        config.mtp_layers,
    )
}
