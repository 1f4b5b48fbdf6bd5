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
        name: "spirv-val",
        what_for: "says whether the GPU kernels are valid SPIR-V",
        probe: || program("spirv-val", ["--version"]),
        install: || debian("spirv-tools"),
    },
    Need {
        name: "lavapipe",
        what_for: "is the Vulkan device that the GPU kernels run on where there is no GPU",
        probe: || {
            program(
                "test",
                ["-e", "/usr/share/vulkan/icd.d/lvp_icd.x86_64.json"],
            )
        },
        install: || debian("mesa-vulkan-drivers"),
    },
    Need {
        name: "level-zero",
        what_for: "its headers check the bindings, its loader and validation layer run the Level Zero backend",
        probe: || {
            let files = "/usr/include/level_zero/ze_ddi.h /usr/lib/*/libze_validation_layer.so.1";
            program("sh", ["-c", &format!("ls {files}")])
        },
        install: || debian("libze1 libze-dev"),
    },
];

fn program<const N: usize>(name: &str, words: [&str; N]) -> Command {
    let mut command = Command::new(name);
    command.args(words);
    command
}

/// Installs Debian packages; as another user than root through sudo.
fn debian(packages: &str) -> Command {
    let script = "as() { if [ \"$(id -u)\" = 0 ]; then \"$@\"; else sudo \"$@\"; fi; }; \
                  as apt-get update -q && as apt-get install -qy --no-install-recommends $1";
    program("sh", ["-c", script, "sh", packages])
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
