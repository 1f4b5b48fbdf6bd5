//! The `layerlet` command. Each subcommand is a file: flags in, engine calls, text or JSON out.
//!
//! Results go to stdout; progress, timings and errors to stderr. A failure says what was wrong and
//! exits with 1; a mistyped flag with 2.

mod bench;
mod canary;
mod common;
mod devices;
mod error;
mod format;
mod generate;
mod ids;
mod inspect;
mod plan;
mod quantize;
mod shadow;
mod synth;
mod trace;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Runs hybrid mixture-of-experts models with the bytes of a written reference.
///
/// Batch size, prompt chunks, fused kernels and the backend never change a token.
#[derive(Parser)]
#[command(name = "layerlet", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Generate text or token ids
    Generate(generate::Args),
    /// Write what every layer computes for given ids, as safetensors
    Trace(trace::Args),
    /// Show what a step launches, moves and needs, without any device
    Plan(plan::Args),
    /// Measure prefill and decode, and what the memory would allow
    Bench(bench::Args),
    /// Check a checkpoint and show what it holds
    Inspect(inspect::Args),
    /// Turn a bf16 checkpoint into Quark W8A8 INT8
    Quantize(quantize::Args),
    /// Write a model with random weights, for tests and measurements
    Synth(synth::Args),
    /// Ask a model questions that have one right answer
    Canary(canary::Args),
    /// List the backends and their devices
    Devices(devices::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Generate(args) => generate::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Quantize(args) => quantize::run(&args),
        Command::Synth(args) => synth::run(&args),
        Command::Canary(args) => canary::run(&args),
        Command::Devices(args) => devices::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has enough: `layerlet inspect DIR | head`.
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
