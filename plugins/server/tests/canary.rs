//! The demo model as its users meet it: the first command, and the questions that it must answer.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/models/demo")
}

/// Runs the command in a folder that has nothing to do with the source tree.
fn elsewhere(args: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    Command::new(env!("CARGO_BIN_EXE_layerlet"))
        .args(args)
        .current_dir(folder.path())
        .env_remove("LAYERLET_MODEL")
        .output()
        .expect("the binary was built for this test")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Kind, passed and asked of every row.
fn counts(output: &Output) -> Vec<(String, u64, u64)> {
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", text(&output.stderr)));
    let kinds = report["kinds"].as_array().expect("a list of kinds");
    let count = |kind: &Value, what: &str| kind[what].as_u64().expect("a count");
    let row = |kind: &Value| {
        let name = kind["kind"].as_str().expect("a name").to_string();
        (name, count(kind, "passed"), count(kind, "of"))
    };
    kinds.iter().map(row).collect()
}

#[test]
fn the_demo_model_answers_every_canary() {
    let bf16 = demo().join("bf16").display().to_string();
    for model in [&[][..], &["--model", &bf16]] {
        let output = elsewhere(&[&["canary", "--json"], model].concat());
        let expected = [("colour".into(), 16, 16), ("json".into(), 64, 64)];
        assert_eq!(counts(&output), expected, "{}", text(&output.stdout));
        assert!(output.status.success());
    }
}

#[test]
fn a_wrong_answer_is_shown_and_fails() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("questions.json");
    let ask = |answer| {
        serde_json::json!({
            "messages": [{ "role": "user", "content": "Say yes." }], "answer": answer,
        })
    };
    let questions = serde_json::json!({ "word": [ask("no such answer")] });
    std::fs::write(&path, questions.to_string()).unwrap();
    let path = path.display().to_string();
    let output = elsewhere(&["canary", "--canaries", &path]);
    assert_eq!(output.status.code(), Some(1));
    let (shown, errors) = (text(&output.stdout), text(&output.stderr));
    for fragment in [
        "| word ",
        "Say yes.",
        "expected \"no such answer\"",
        "found ",
    ] {
        assert!(shown.contains(fragment), "no {fragment:?} in {shown}");
    }
    assert!(errors.contains("1 of 1 canaries fail"), "{errors}");
}

#[test]
fn canaries_need_a_file_and_a_template() {
    let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/oracle/tiny/quark");
    let tiny = tiny.display().to_string();
    let refused = |args: &[&str], fragment: &str| {
        let output = elsewhere(args);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.contains(fragment), "{errors}");
    };
    refused(&["canary", "--model", &tiny], "--canaries");
    let canaries = demo().join("canaries.json").display().to_string();
    let with_file = ["canary", "--model", &tiny, "--canaries", &canaries];
    refused(&with_file, "has no tokenizer.json");
    refused(&["canary", "--canaries", "/nowhere.json"], "/nowhere.json");
    refused(&["canary", "--max-tokens", "4000"], "positions are needed");
}

/// The first command of the README. Its tokens are drawn as generation_config.json says: the most likely
/// ones, which flags ask for, are others.
#[test]
fn the_first_command_works_anywhere() {
    let output = elsewhere(&["generate", "It is a truth"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.split_whitespace().count() > 20, "{said}");
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let shown = words(&std::fs::read_to_string(readme).unwrap());
    assert!(shown.contains(&words(&said)), "README.md has not {said:?}");
    let greedy = elsewhere(&["generate", "It is a truth", "--temperature", "0"]);
    assert_ne!(text(&greedy.stdout), said);
}
