//! `layerlet-core` builds without std: a target check by linking, with its planted fault.

use layerlet_tests::root;
use std::process::{Command, Output};

fn build(features: &[&str]) -> Output {
    Command::new(env!("CARGO"))
        .args(["build", "--release", "--quiet"])
        .args(features)
        .current_dir(root().join("tests/no-std"))
        .env("CARGO_TARGET_DIR", root().join("target/no-std"))
        .output()
        .expect("cargo starts")
}

#[test]
fn core_needs_no_std() {
    let clean = build(&[]);
    let said = String::from_utf8_lossy(&clean.stderr);
    assert!(clean.status.success(), "core pulls in std:\n{said}");
    let faulty = build(&["--features", "std"]);
    let said = String::from_utf8_lossy(&faulty.stderr);
    assert!(
        !faulty.status.success() && said.contains("panic_impl"),
        "std in the graph must break the build, it said:\n{said}"
    );
}
