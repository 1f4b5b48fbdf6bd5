//! Fixture files: what they mean, and what is said of those that mean nothing.

use layerlet_core::buffer::Role;
use layerlet_golden::fixture::Fixture;
use std::path::{Path, PathBuf};

const NORM: &str = r#"
about = "A norm."
seed = 1
[dims]
T = 2
H = 5
[buffer.x]
shape = ["T", "2*H + 1"]
fill = { normal = 1 }
[buffer.weight]
shape = [11]
fill = { normal = 1 }
[buffer.out]
shape = ["T", 11]
[[launch]]
op = "rms_norm"
eps = 1e-6
offset = "One"
stride = 11
"#;

fn write(dir: &Path, text: &str) -> PathBuf {
    let path = dir.join("one.toml");
    std::fs::write(&path, text).unwrap();
    path
}

fn error(dir: &Path, text: &str) -> String {
    let outcome = Fixture::load(&write(dir, text)).and_then(|f| f.case(1).map(drop));
    outcome.unwrap_err().to_string()
}

#[test]
fn names_sizes_and_roles_are_filled_in() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = Fixture::load(&write(dir.path(), NORM)).unwrap();
    assert_eq!(
        (fixture.name.as_str(), fixture.subject),
        ("rms_norm/one", "rms_norm")
    );
    let case = fixture.case(1).unwrap();
    let decl = |name| case.decl(case.plan.buffers.find(name).unwrap());
    assert_eq!(
        (decl("x").shape.as_slice(), decl("x").role),
        (&[2, 11][..], Role::Step)
    );
    assert_eq!(decl("weight").role, Role::Weight);
    assert_eq!(decl("out").role, Role::Output);
}

/// The first rows of more rows are the rows of fewer.
#[test]
fn longer_buffers_start_with_shorter_ones() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = |rows: &str| {
        let text = NORM.replace("T = 2", &format!("T = {rows}"));
        let case = Fixture::load(&write(dir.path(), &text))
            .unwrap()
            .case(1)
            .unwrap();
        let id = case.plan.buffers.find("x").unwrap();
        let input = case.inputs.into_iter().find(|(input, _)| *input == id);
        input.unwrap().1
    };
    let (two, nine) = (bytes("2"), bytes("9"));
    assert_eq!(two, nine[..two.len()]);
}

#[test]
fn a_file_that_means_nothing_says_where() {
    let dir = tempfile::tempdir().unwrap();
    let check = |from: &str, to: &str, expected: &str| {
        let text = NORM.replace(from, to);
        assert_ne!(text, NORM, "{from:?} is not in the fixture");
        let error = error(dir.path(), &text);
        assert!(error.contains("one.toml: "), "{error}");
        assert!(error.contains(expected), "no {expected:?} in {error}");
    };
    check(
        "rms_norm",
        "rms_nrom",
        "there is no operation \"rms_nrom\"; there are embedding, ",
    );
    check(
        "2*H + 1",
        "2*W + 1",
        "buffer x: \"W\" is neither a number nor one of [dims]",
    );
    check("eps = 1e-6", "", "rms_norm: missing field `eps`");
    check("seed = 1", "seeds = 1", "unknown field `seeds`");
    check(
        "shape = [11]\nfill = { normal = 1 }",
        "shape = [11]",
        "buffer weight is read and has no fill",
    );
    check(
        "{ normal = 1 }",
        "{ below = 4 }",
        "Below(4) does not fill single floats",
    );
    check(
        "shape = [\"T\", 11]",
        "shape = [\"T\", 12]",
        "expected shape",
    );
    check(
        "[[launch]]",
        "[buffer.extra]\nshape = [1]\n[[launch]]",
        "no launch uses buffer extra",
    );
}

#[test]
fn captured_tensors_must_be_as_declared() {
    let dir = tempfile::tempdir().unwrap();
    let torch = layerlet_golden::folder().join("external/torch/rms_norm.safetensors");
    let captured = |file: &Path, tensor: &str| {
        let fill = format!("fill = {{ captured = {{ file = {file:?}, tensor = {tensor:?} }} }}");
        NORM.replacen("fill = { normal = 1 }", &fill, 1)
    };
    let found = error(dir.path(), &captured(&torch, "x"));
    assert!(
        found.contains("x has shape [24, 160], expected [2, 11]"),
        "{found}"
    );
    let found = error(dir.path(), &captured(&torch, "y"));
    assert!(
        found.contains("rms_norm.safetensors") && found.contains("y"),
        "{found}"
    );
    let found = error(dir.path(), &captured(&torch, "weight"));
    assert!(found.contains("weight is F32, expected bf16"), "{found}");
    let found = error(dir.path(), &captured(Path::new("gone.safetensors"), "x"));
    assert!(found.contains("gone.safetensors"), "{found}");
}
