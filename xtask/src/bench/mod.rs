//! `cargo xtask bench`: `layerlet bench`, alone or against a peer on the same machine.
//!
//! Against a peer both run in turns, so that noise of the machine falls on both alike. Each run is a process of
//! its own, whose peak memory is watched from outside in the same way.

mod child;
mod compare;
mod llama;
mod ours;

use crate::command::{self, cargo, root};
use std::path::PathBuf;
use std::process::Command;

/// Measure `layerlet bench`, alone or against a peer.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask bench --model DIR
  cargo xtask bench --model DIR --against llama.cpp --peer-bin build/bin/llama-bench --peer-model model.gguf

Both decode from an empty context, as llama-bench does. Weights of different formats are not the same model: \
name the formats beside the numbers.")]
pub struct Args {
    /// Folder of the checkpoint
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// The peer to measure in turns
    #[arg(long, value_enum, requires_all = ["peer_bin", "peer_model"])]
    against: Option<Peer>,
    /// The peer's benchmark program
    #[arg(long, value_name = "PATH", requires = "against")]
    peer_bin: Option<PathBuf>,
    /// The peer's model file
    #[arg(long, value_name = "FILE", requires = "against")]
    peer_model: Option<PathBuf>,
    /// Tokens of the prompt
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    prompt: u32,
    /// Tokens to decode
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    generate: u32,
    /// Threads of both [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Runs of each
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    repeats: u16,
    /// JSON on stdout
    #[arg(long)]
    json: bool,
    /// The layerlet program [default: built in release mode]
    #[arg(long, value_name = "PATH")]
    bin: Option<PathBuf>,
}

/// Whom to measure against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Peer {
    /// `llama-bench` of llama.cpp, with a GGUF file
    #[value(name = "llama.cpp")]
    LlamaCpp,
}

pub fn run(args: &Args) -> Result<(), String> {
    let (Some(Peer::LlamaCpp), Some(bin), Some(model)) =
        (args.against, &args.peer_bin, &args.peer_model)
    else {
        return command::run(ours::alone(&layerlet(args)?, args));
    };
    for (flag, path) in [("--peer-bin", bin), ("--peer-model", model)] {
        if !path.is_file() {
            return Err(format!("{flag}: there is no file {}", path.display()));
        }
    }
    let layerlet = layerlet(args)?;
    let turns = compare::Turns {
        ours: || ours::measure(&layerlet, args),
        theirs: || llama::measure(bin, model, args),
    };
    let comparison = turns.run(args.repeats)?;
    match args.json {
        true => {
            let json = serde_json::to_string_pretty(&comparison);
            println!("{}", json.map_err(|e| e.to_string())?);
        }
        false => println!("{}", comparison.table()),
    }
    Ok(())
}

fn layerlet(args: &Args) -> Result<PathBuf, String> {
    if let Some(bin) = &args.bin {
        return match bin.is_file() {
            true => Ok(bin.clone()),
            false => Err(format!("--bin: there is no file {}", bin.display())),
        };
    }
    command::run(cargo([
        "build",
        "--release",
        "--quiet",
        "--package",
        "layerlet",
    ]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root().join("target"), PathBuf::from);
    let name = format!("layerlet{}", std::env::consts::EXE_SUFFIX);
    Ok(root().join(target).join("release").join(name))
}

/// All cores unless told: both sides get the same number.
fn threads(args: &Args) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    args.threads.map_or_else(cores, usize::from)
}

/// A program with arguments that are told by their texts.
fn program(path: &std::path::Path, words: &[&str]) -> Command {
    let mut command = Command::new(path);
    command.args(words);
    command
}
