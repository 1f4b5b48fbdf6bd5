//! `cargo xtask lint`: formatting, clippy, documentation; every warning is an error.

use crate::command::{self, cargo};

pub fn run() -> Result<(), String> {
    run_all(&[
        &["fmt", "--all", "--check"],
        &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--quiet",
            "--",
            "-D",
            "warnings",
        ],
    ])?;
    let mut doc = cargo(["doc", "--workspace", "--no-deps", "--quiet"]);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    command::run(doc)
}

fn run_all(commands: &[&[&str]]) -> Result<(), String> {
    commands
        .iter()
        .try_for_each(|args| command::run(cargo(*args)))
}
