//! `cargo xtask test`: every test of the workspace, with what they need.
//!
//! A need is something outside Cargo's reach. `--setup` installs it; without `--setup` a missing one
//! is reported as skipped, and where `CI` is set a skip is a failure: nothing is skipped in silence.

use crate::command::{self, cargo, succeeds};
use std::process::Command;

#[derive(clap::Args)]
pub struct Args {
    /// Install what the tests need first
    #[arg(long)]
    setup: bool,
    /// Run the exhaustive sweeps too (all 2^32 inputs; tens of minutes)
    #[arg(long)]
    slow: bool,
    /// Only tests whose name contains this
    #[arg(long)]
    filter: Option<String>,
}

/// Something the tests use that Cargo does not bring.
struct Need {
    name: &'static str,
    what_for: &'static str,
    probe: fn() -> Command,
    install: fn() -> Command,
}

const NEEDS: &[Need] = &[
    Need {
        name: "cargo-nextest",
        what_for: "runs tests in processes of their own; without it `cargo test` runs them",
        probe: || cargo(["nextest", "--version"]),
        install: || cargo(["install", "cargo-nextest", "--locked"]),
    },
    Need {
        name: "level-zero",
        what_for: "its headers check the bindings, its loader and validation layer run the Level Zero backend",
        probe: || {
            shell(
                "ls /usr/include/level_zero/ze_ddi.h && ls /usr/lib/*/libze_validation_layer.so.1",
            )
        },
        install: || debian(&["libze1", "libze-dev"]),
    },
];

fn shell(line: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", line]);
    command
}

/// Installs packages as root, or through sudo.
fn debian(packages: &[&str]) -> Command {
    let packages = packages.join(" ");
    shell(&format!(
        "S=$(test \"$(id -u)\" = 0 || echo sudo); $S apt-get -q update && $S apt-get -q install -y {packages}"
    ))
}

pub fn run(args: &Args) -> Result<(), String> {
    let skipped = meet_needs(args.setup)?;
    if std::env::var_os("CI").is_some() && !skipped.is_empty() {
        return Err(format!(
            "in CI nothing may be skipped: {}",
            skipped.join(", ")
        ));
    }
    command::run(tests(&["test", "--workspace", "--doc", "--quiet"], args))?;
    let runner: &[&str] = match skipped.contains(&"cargo-nextest") {
        true => &["test", "--workspace", "--lib", "--bins", "--tests"],
        false => &["nextest", "run", "--workspace", "--no-fail-fast"],
    };
    command::run(tests(runner, args))
}

fn tests(words: &[&str], args: &Args) -> Command {
    let mut command = cargo(words);
    if let Some(filter) = &args.filter {
        command.arg(filter);
    }
    if args.slow {
        command.env("LAYERLET_SLOW", "1");
    }
    command
}

fn meet_needs(setup: bool) -> Result<Vec<&'static str>, String> {
    let mut skipped = Vec::new();
    for need in NEEDS {
        if succeeds((need.probe)()) {
            println!("found    {}", need.name);
        } else if setup {
            println!("install  {}", need.name);
            command::run((need.install)())?;
        } else {
            println!(
                "skipped  {} ({}): --setup installs it",
                need.name, need.what_for
            );
            skipped.push(need.name);
        }
    }
    Ok(skipped)
}
