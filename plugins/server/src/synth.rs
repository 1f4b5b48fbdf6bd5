//! `layerlet synth`.

use crate::common::bytes_bar;
use crate::error::CommandError;
use crate::format;
use layerlet_engine::synth::{Preset, synthesize};
use serde_json::json;
use std::path::PathBuf;

/// Writes a model with random weights, in Quark W8A8 INT8: real shapes where no real weights are.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  layerlet synth --preset tiny --seed 7 models/tiny
  layerlet generate --model models/tiny --ids 1,2,3
  layerlet synth --preset mid models/mid --json

The same preset and seed give the same weights on every machine. There is no tokenizer: give token
ids.")]
pub struct Args {
    /// Folder to write: new or empty
    to: PathBuf,
    /// Which model
    #[arg(long, value_enum)]
    preset: PresetKind,
    /// Seed of the weights
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Most MiB of tensors in one file
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    shard_mib: u64,
    /// JSON on stdout
    #[arg(long)]
    json: bool,
}

/// A model that can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum PresetKind {
    /// Every part of the family in 0.6 MiB: both mixers, experts, prediction head
    Tiny,
    /// Eight layers of Qwen3.6-35B-A3B with 64 experts each, vocabulary 32,000: 2.0 GiB
    Mid,
    /// One layer of either kind of Qwen3.6-35B-A3B with its 256 experts, vocabulary 32,000: 1.8 GiB
    Qwen36Layer,
}

impl PresetKind {
    fn preset(self) -> Preset {
        match self {
            PresetKind::Tiny => Preset::Tiny,
            PresetKind::Mid => Preset::Mid,
            PresetKind::Qwen36Layer => Preset::Qwen36Layer,
        }
    }
}

pub fn run(args: &Args) -> Result<(), CommandError> {
    let preset = args.preset.preset();
    let bar = bytes_bar("synthesising");
    let shard_bytes = args.shard_mib << 20;
    let done = synthesize(preset, args.seed, &args.to, shard_bytes, &|done, total| {
        bar.set_length(total);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    if args.json {
        return format::json(&json!({
            "preset": preset.name(),
            "seed": args.seed,
            "shards": done.shards,
            "bytes": done.bytes,
            "int8_linears": done.linears,
        }));
    }
    format::line(&format!(
        "{}: {} of seed {}, {} in {}",
        args.to.display(),
        preset.name(),
        args.seed,
        format::bytes(done.bytes),
        done.shards.join(", "),
    ))
}
