//! `layerlet quantize`.

use crate::common::bytes_bar;
use crate::error::CommandError;
use crate::format;
use layerlet_engine::quantize::quantize;
use serde_json::json;
use std::path::PathBuf;

/// Writes the int8 copy of a checkpoint: weights per output row, symmetric, round half to even.
#[derive(clap::Args)]
#[command(after_help = "Example: layerlet quantize models/bf16 models/int8")]
pub struct Args {
    /// Folder of the bf16 checkpoint
    from: PathBuf,
    /// Folder to write: new or empty
    to: PathBuf,
    /// Most MiB of tensors in one file
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    shard_mib: u64,
    /// JSON on stdout
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<(), CommandError> {
    let bar = bytes_bar("quantising");
    let shard_bytes = args.shard_mib << 20;
    let done = quantize(&args.from, &args.to, shard_bytes, &|done, total| {
        bar.set_length(total);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    if args.json {
        return format::json(&json!({
            "shards": done.shards,
            "bytes": done.bytes,
            "int8_linears": done.linears,
            "copied": done.copied,
        }));
    }
    format::line(&format!(
        "{}: {} linears are int8, {} in {}",
        args.to.display(),
        done.linears,
        format::bytes(done.bytes),
        done.shards.join(", "),
    ))
}
