//! `--plugin`: the same tokens from a backend in a file.

mod common;

use common::*;
use std::path::PathBuf;

/// Cargo puts the libraries that a test depends on beside it.
fn cpu_plugin() -> String {
    let test = std::env::current_exe().unwrap();
    let (prefix, suffix) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let name = format!("{prefix}layerlet_native_cpu{suffix}");
    let path: PathBuf = test.parent().unwrap().join(name);
    path.display().to_string()
}

#[test]
fn a_plugin_gives_the_tokens_of_the_backend_that_is_built_in() {
    let model = tiny("quark");
    let args = [
        "generate",
        "--model",
        &model,
        "--ids",
        "1,2,3",
        "--max-tokens",
        "24",
    ];
    let expected = stdout(&args);
    let plugin = cpu_plugin();
    for more in [
        &["--plugin", &plugin][..],
        &["--plugin", &plugin, "--threads", "1"],
    ] {
        assert_eq!(stdout(&[&args[..], more].concat()), expected);
    }
    let both = [&args[..], &["--plugin", &plugin, "--backend", "cpu"]].concat();
    refused(&both, 2, &["--plugin", "--backend"]);
    refused(
        &[&args[..], &["--plugin", "none.so"]].concat(),
        1,
        &["none.so"],
    );
}
