//! `cargo xtask golden` as a process: exit codes, what goes to stdout, what goes to stderr.

use layerlet_core::fixture::Fixture;
use layerlet_core::reference::Reference;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn golden(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask"))
        .arg("golden")
        .args(args)
        .env_remove("CI")
        .output()
        .expect("xtask starts")
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn torch() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden/external/torch")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn one_operation_as_json() {
    let output = golden(&["--filter", "gather_rows", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON on stdout");
    let rows = json["rows"].as_array().expect("rows");
    for backend in ["reference", "cpu", "cpu, 3 threads"] {
        assert!(
            rows.iter().any(|r| r["backend"] == backend),
            "no row of {backend}"
        );
    }
    assert!(
        rows.iter()
            .all(|r| r["op"] == "gather_rows" && r["mismatches"] == 0)
    );
    let unproved: Vec<String> = layerlet_cpu::Level::missing()
        .into_iter()
        .map(|level| format!("cpu, {level}"))
        .collect();
    assert_eq!(json["unproved"], serde_json::json!(unproved));
    for name in &unproved {
        assert!(rows.iter().all(|r| r["backend"] != **name), "{name}");
        assert!(text(&output.stderr).contains(name), "{name} is not named");
    }
    let bites = json["teeth"]["bites"].as_array().expect("mutants");
    assert!(!bites.is_empty() && bites.iter().all(|b| b["caught"] == true));
    let why = json["not_attested"].as_str().expect("a reason");
    assert!(why.contains("without --filter"), "{why}");
}

#[test]
fn one_fixture_as_a_table() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fixture = fixture.join("../golden/fixtures/rms_norm/heads.toml");
    let output = golden(&[
        "--fixture",
        fixture.to_str().expect("UTF-8"),
        "--cases",
        "1",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    for word in [
        "op",
        "variant",
        "backend",
        "cases",
        "mismatches",
        "rms_norm",
        "pinned",
    ] {
        assert!(table.contains(word), "no {word} in\n{table}");
    }
}

/// What shadow verification keeps: a plan with inputs and digests, as bytes.
#[test]
fn an_encoded_fixture() {
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden/fixtures/rms_norm/heads.toml");
    let source = layerlet_golden::fixture::Fixture::load(&source).expect("a fixture");
    let case = source.case(source.seed()).expect("a case");
    let results = Fixture::results(&case.plan).map(|id| (id, [0; 32]));
    let mut fixture = Fixture {
        name: "shadow/rms_norm".into(),
        subject: case.subject.into(),
        outputs: results.collect(),
        plan: case.plan,
        inputs: case.inputs,
    };
    fixture.outputs = fixture.run(&Reference).expect("runs");
    let path = folder("encoded").join("kept.llfx");
    let run = |fixture: &Fixture| {
        std::fs::write(&path, fixture.encode()).expect("a file");
        golden(&["--fixture", path.to_str().expect("UTF-8"), "--json"])
    };
    let output = run(&fixture);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON on stdout");
    let rows = json["rows"].as_array().expect("rows");
    for backend in ["reference", "cpu"] {
        let mut rows = rows.iter().filter(|r| r["op"] == "rms_norm");
        assert!(rows.any(|r| r["backend"] == backend), "no row of {backend}");
    }
    fixture.outputs[0].1[0] ^= 1;
    let output = run(&fixture);
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(errors.contains("rms_norm (kept) on reference"), "{errors}");
    fixture.subject = "no_such_kernel".into();
    let errors = text(&run(&fixture).stderr);
    assert!(
        errors.contains("kept.llfx") && errors.contains("no_such_kernel"),
        "{errors}"
    );
    std::fs::write(&path, b"LLFX, and then nothing").expect("a file");
    let output = golden(&["--fixture", path.to_str().expect("UTF-8")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("kept.llfx"));
}

#[test]
fn nothing_to_check_is_no_success() {
    for args in [
        &["--filter", "no such thing"][..],
        &["--teeth", "--filter", "no such thing"],
    ] {
        let output = golden(args);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("passes the filter"));
    }
}

#[test]
fn flags_that_exclude_each_other_are_a_usage_error() {
    for args in [
        &["--attestation", "a.json", "--filter", "rope"][..],
        &["--external", "dumps", "--teeth"],
        &["--cases", "0"],
    ] {
        assert_eq!(golden(args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn a_broken_fixture_is_named() {
    let path = folder("broken").join("broken.toml");
    std::fs::write(&path, "about = \"no launch\"\n[buffer]\nlaunch = []\n").expect("a file");
    let output = golden(&["--fixture", path.to_str().expect("UTF-8")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("broken.toml"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn foreign_dumps_differ_or_do_not() {
    let output = golden(&["--external", torch().to_str().expect("UTF-8"), "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON on stdout");
    let outputs = json.as_array().expect("outputs");
    assert!(outputs.iter().all(|o| o["equal"] == o["elements"]));

    let differing = folder("differing").join("silu_mul.safetensors");
    let mut dump = std::fs::read(torch().join("silu_mul.safetensors")).expect("a dump");
    // The last tensor is the output, the last two bytes its last element.
    let last = dump.len() - 2;
    dump[last] ^= 1;
    std::fs::write(&differing, dump).expect("a file");
    let output = golden(&["--external", folder("differing").to_str().expect("UTF-8")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("silu_mul.safetensors"));
    let stderr = text(&output.stderr);
    for part in [
        "silu_mul.safetensors out: at [23, 71]",
        "1 of 1 outputs differ",
    ] {
        assert!(stderr.contains(part), "no {part:?} in {stderr}");
    }
}
