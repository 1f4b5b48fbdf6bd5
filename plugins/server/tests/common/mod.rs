//! The command as its users run it: what every test of it needs.
#![allow(dead_code)]

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

pub fn tiny(folder: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = root.join("tests/oracle/tiny").join(folder);
    path.display().to_string()
}

pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_layerlet"));
    command
        .args(args)
        .env_remove("LAYERLET_MODEL")
        .env_remove("LAYERLET_CPU");
    command
}

pub fn layerlet(args: &[&str]) -> Output {
    command(args)
        .output()
        .expect("the binary was built for this test")
}

pub fn stdout(args: &[&str]) -> String {
    let output = layerlet(args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

pub fn json(args: &[&str]) -> Value {
    let text = stdout(args);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{args:?}: {e}\n{text}"))
}

/// A failure says why on stderr, says nothing on stdout, and has this exit code.
pub fn refused(args: &[&str], code: i32, fragments: &[&str]) {
    let output = layerlet(args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {errors}");
    assert!(output.stdout.is_empty(), "{args:?} wrote to stdout");
    for fragment in fragments {
        assert!(
            errors.contains(fragment),
            "{args:?}: no {fragment:?} in {errors}"
        );
    }
}
