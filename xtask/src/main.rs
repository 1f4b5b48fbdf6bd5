//! `cargo xtask`: the project's own commands.

mod bench;
mod command;
mod doc;
mod golden;
mod lint;
mod test;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Prove, test and document Layerlet.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Prove every operation and fused kernel, bit for bit
    Golden(golden::Args),
    /// Run every test; report what is missing as skipped
    Test(test::Args),
    /// Measure speed, alone or against a peer
    Bench(bench::Args),
    /// Formatting, clippy and documentation, all warnings are errors
    Lint,
    /// Build the documentation and say where it is
    Doc(doc::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Golden(args) => golden::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Lint => lint::run(),
        Command::Doc(args) => doc::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}
