//! `layerlet bench` as a process.

use super::child::run_json;
use super::compare::Sample;
use super::{Args, program, threads};
use layerlet_engine::bench::Report;
use std::path::Path;
use std::process::Command;

/// The whole benchmark, its output as it is.
pub fn alone(layerlet: &Path, args: &Args) -> Command {
    let mut command = command(layerlet, args);
    command.args(["--repeats", &args.repeats.to_string()]);
    if args.json {
        command.arg("--json");
    }
    command
}

/// One run of what a peer measures too: no more memory and work than that takes.
pub fn measure(layerlet: &Path, args: &Args) -> Result<Sample, String> {
    let mut command = command(layerlet, args);
    command.args(["--context", "0", "--repeats", "1", "--brief", "--json"]);
    let run = run_json::<Report>(command)?;
    let decode = run.output.decode.first();
    let decode = decode.ok_or("`layerlet bench` reported no decoding")?;
    Ok(Sample {
        prefill: run.output.prefill.tokens_per_second.median,
        decode: decode.tokens_per_second.median,
        time_to_first_token: run.output.prefill.time_to_first_token_seconds.median,
        peak_resident: run.peak_resident,
    })
}

fn command(layerlet: &Path, args: &Args) -> Command {
    let [prompt, generate, threads] =
        [args.prompt as usize, args.generate as usize, threads(args)].map(|n| n.to_string());
    let mut command = program(layerlet, &["bench", "--model"]);
    command.arg(&args.model).args([
        "--prompt",
        &prompt,
        "--chunk",
        &prompt,
        "--generate",
        &generate,
        "--threads",
        &threads,
    ]);
    command
}
