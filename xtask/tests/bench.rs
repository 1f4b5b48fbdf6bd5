//! `cargo xtask bench` as a process. Both programs are stand-ins: scripts that print what the real ones print, so
//! that what is tested is the turns, the parsing and the errors, never a speed.
#![cfg(unix)]

use layerlet_engine::bench::Report;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The fields of `llama-bench -o json` that matter here, among some of the others.
fn llama_output() -> Value {
    let test = |n_prompt, n_gen, speed: f64| {
        json!({
            "build_commit": "0000000", "cpu_info": "a stand-in", "model_type": "stand-in",
            "n_threads": 3, "n_prompt": n_prompt, "n_gen": n_gen, "n_depth": 0,
            "avg_ns": 1, "stddev_ns": 0, "avg_ts": speed, "stddev_ts": 0.0,
            "samples_ns": [1], "samples_ts": [speed],
        })
    };
    json!([test(16, 0, 80.0), test(0, 4, 10.0)])
}

/// A brief report of `layerlet bench`, checked against its type.
fn layerlet_output() -> Value {
    let summary = |n: f64| json!({"median": n, "min": n, "max": n, "samples": [n]});
    let report = json!({
        "device": {"backend": "cpu", "device": "a stand-in", "driver": "", "features": []},
        "threads": 3,
        "fused": true,
        "settings": {
            "prompt": 16, "chunk": 16, "generate": 4, "context": 0, "batches": [1], "contexts": [],
            "repeats": 1, "seed": 0, "read_buffer": null,
        },
        "memory": {"weights": 1, "state": 1, "peak_resident": null},
        "prefill": {
            "tokens_per_second": summary(40.0),
            "time_to_first_token_seconds": summary(0.4),
            "movement": null,
        },
        "decode": [
            {"batch": 1, "context": 0, "tokens_per_second": summary(15.0), "movement": null},
        ],
        "contexts": [],
        "read_bandwidth": null,
        "prefill_operations": [],
        "decode_operations": [],
    });
    serde_json::from_value::<Report>(report.clone()).expect("the schema of layerlet bench");
    report
}

struct Fixture {
    folder: PathBuf,
}

impl Fixture {
    fn new(name: &str) -> Fixture {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        let fixture = Fixture { folder };
        fixture.script("layerlet", &prints(&layerlet_output()));
        fixture.script("llama-bench", &prints(&llama_output()));
        fs::write(fixture.path("model.gguf"), "").expect("a file");
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A program that notes its arguments, then does `body`.
    fn script(&self, name: &str, body: &str) {
        let log = self.path("log").display().to_string();
        let text = format!("#!/bin/sh\necho {name} \"$@\" >> '{log}'\n{body}\n");
        // Renamed into its place: a file that is open for writing cannot be started.
        let (path, new) = (self.path(name), self.path("new"));
        fs::write(&new, text).expect("a script");
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).expect("made executable");
        fs::rename(new, path).expect("renamed");
    }

    fn run(&self, more: &[&str]) -> Output {
        let path = |name| self.path(name).display().to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.args(["bench", "--model", "the model", "--bin", &path("layerlet")]);
        command.args([
            "--prompt",
            "16",
            "--generate",
            "4",
            "--threads",
            "3",
            "--repeats",
            "2",
        ]);
        command.args(more).output().expect("xtask starts")
    }

    fn against(&self, more: &[&str]) -> Output {
        let path = |name| self.path(name).display().to_string();
        let (bin, model) = (path("llama-bench"), path("model.gguf"));
        let peer = [
            "--against",
            "llama.cpp",
            "--peer-bin",
            &bin,
            "--peer-model",
            &model,
        ];
        self.run(&[&peer[..], more].concat())
    }

    fn refuses(&self, output: &Output, fragments: &[&str]) {
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
        for fragment in fragments {
            assert!(errors.contains(fragment), "no {fragment:?} in {errors}");
        }
    }
}

fn prints(output: &Value) -> String {
    format!("cat <<'END'\n{output}\nEND")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn both_run_in_turns_and_medians_are_compared() {
    let fixture = Fixture::new("bench turns");
    let output = fixture.against(&["--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let number = |side: &str, what: &str| json[side][what]["median"].as_f64();
    for (what, ours, theirs) in [
        ("prefill_tokens_per_second", 40.0, 80.0),
        ("decode_tokens_per_second", 15.0, 10.0),
        ("time_to_first_token_seconds", 0.4, 0.2),
    ] {
        assert_eq!(number("ours", what), Some(ours), "{what}");
        assert_eq!(number("theirs", what), Some(theirs), "{what}");
        assert_eq!(json["ratio"][what].as_f64(), Some(ours / theirs), "{what}");
    }
    let log = fs::read_to_string(fixture.path("log")).expect("a log");
    let model = fixture.path("model.gguf").display().to_string();
    let ours = "layerlet bench --model the model --prompt 16 --chunk 16 --generate 4 --threads 3 \
                --context 0 --repeats 1 --brief --json";
    let theirs = format!("llama-bench -m {model} -p 16 -n 4 -r 1 -t 3 -o json");
    assert_eq!(
        log.lines().collect::<Vec<_>>(),
        [ours, &theirs, ours, &theirs]
    );
}

#[test]
fn a_table_for_people() {
    let output = Fixture::new("bench table").against(&[]);
    let table = text(&output.stdout);
    for word in [
        "llama.cpp",
        "prefill, tokens/s",
        "decode, tokens/s",
        "1.50",
        "200.0 (200.0 to 200.0)",
    ] {
        assert!(table.contains(word), "no {word:?} in\n{table}");
    }
}

#[test]
fn alone_it_passes_everything_on() {
    let fixture = Fixture::new("bench alone");
    let output = fixture.run(&["--json"]);
    let printed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(printed, layerlet_output());
    let log = fs::read_to_string(fixture.path("log")).expect("a log");
    assert!(
        log.contains("--repeats 2 --json") && !log.contains("--brief"),
        "{log}"
    );
}

#[test]
fn failures_name_the_command_and_what_it_said() {
    let fixture = Fixture::new("bench failures");
    fixture.script("llama-bench", "echo out of luck >&2; exit 3");
    let told = ["`llama-bench -m ", "exit status: 3", "out of luck"];
    fixture.refuses(&fixture.against(&[]), &told);
    fixture.script("llama-bench", "echo loading >&2; echo '| a table |'");
    let told = [
        "`llama-bench -m ",
        "did not print the expected JSON",
        "loading",
    ];
    fixture.refuses(&fixture.against(&[]), &told);
    fixture.script("llama-bench", "echo '[]'");
    fixture.refuses(
        &fixture.against(&[]),
        &["printed no speed for n_prompt 16, n_gen 0"],
    );
    fixture.script("layerlet", "echo no such model >&2; exit 1");
    fixture.refuses(
        &fixture.against(&[]),
        &["`layerlet bench --model the model", "no such model"],
    );
}

#[test]
fn missing_files_are_named_by_their_flags() {
    let fixture = Fixture::new("bench missing");
    fs::remove_file(fixture.path("model.gguf")).expect("removed");
    fixture.refuses(&fixture.against(&[]), &["--peer-model", "model.gguf"]);
    fs::remove_file(fixture.path("llama-bench")).expect("removed");
    fixture.refuses(&fixture.against(&[]), &["--peer-bin", "llama-bench"]);
    fs::remove_file(fixture.path("layerlet")).expect("removed");
    fixture.refuses(&fixture.run(&[]), &["--bin", "layerlet"]);
    let output = fixture.run(&["--against", "llama.cpp"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--peer-bin"));
}
