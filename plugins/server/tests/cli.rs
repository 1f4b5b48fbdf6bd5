//! The command as its users run it: arguments in; standard output, standard error and exit code out.

mod common;

use common::*;
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

fn ids(value: &Value) -> Vec<u64> {
    let list = value["ids"].as_array().expect("ids is a list");
    list.iter().map(|id| id.as_u64().unwrap()).collect()
}

fn generated(more: &[&str]) -> Vec<u64> {
    let model = tiny("quark");
    let base = [
        "generate",
        "--model",
        &model,
        "--ids",
        "1,2,3,4,5,6,7",
        "--max-tokens",
        "24",
        "--json",
    ];
    ids(&json(&[&base[..], more].concat()))
}

/// The tokens depend on the prompt, the model and the sampling alone.
#[test]
fn nothing_but_the_request_changes_a_token() {
    for sampling in [
        &[][..],
        &["--temperature", "1", "--top-p", "0.9", "--seed", "7"],
    ] {
        let expected = generated(sampling);
        assert_eq!(expected.len(), 24);
        for how in [
            &["--backend", "reference"][..],
            &["--unfused"],
            &["--threads", "1"],
            &["--chunk", "1"],
            &["--chunk", "3", "--backend", "reference", "--unfused"],
        ] {
            assert_eq!(generated(&[sampling, how].concat()), expected, "{how:?}");
        }
    }
}

#[test]
fn a_seed_is_heard() {
    let with = |seed| generated(&["--temperature", "2", "--seed", seed]);
    assert_eq!(with("1"), with("1"));
    assert_ne!(with("1"), with("2"));
}

#[test]
fn ids_are_printed_as_they_are_reported() {
    let model = tiny("quark");
    let args = [
        "generate",
        "--model",
        &model,
        "--ids",
        "1,2,3",
        "--max-tokens",
        "5",
    ];
    let reported = json(&[&args[..], &["--json"]].concat());
    let expected: Vec<String> = ids(&reported).iter().map(u64::to_string).collect();
    assert_eq!(stdout(&args), expected.join(",") + "\n");
    assert_eq!(reported["finish"], "length");
    assert_eq!(reported["prompt_ids"], serde_json::json!([1, 2, 3]));
}

/// A checkpoint with a tokenizer of bytes: id `b` is byte `b`.
fn with_byte_tokenizer(folder: &Path) -> PathBuf {
    let dir = folder.join("bytes");
    std::fs::create_dir(&dir).unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(Path::new(&tiny("quark")).join(file), dir.join(file)).unwrap();
    }
    // The printable form of byte-level BPE: bytes without one of their own follow from U+0100 on.
    let printable = |b: u32| matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut next = 0x100;
    let mut vocab = serde_json::Map::new();
    for b in 0..256u32 {
        let symbol = if printable(b) {
            b
        } else {
            next += 1;
            next - 1
        };
        let symbol = char::from_u32(symbol).unwrap().to_string();
        vocab.insert(symbol, b.into());
    }
    let bytes = serde_json::json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false,
    });
    let tokenizer = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null, "pre_tokenizer": bytes, "post_processor": null, "decoder": bytes,
        "model": { "type": "BPE", "dropout": null, "unk_token": null,
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
            "byte_fallback": false, "ignore_merges": false, "vocab": vocab, "merges": [] },
    });
    std::fs::write(dir.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    dir
}

/// Text in, text out; the same through standard input; characters split over tokens come out whole.
#[test]
fn text_is_streamed() {
    let temp = tempfile::tempdir().unwrap();
    let model = with_byte_tokenizer(temp.path()).display().to_string();
    let args = ["generate", "--model", &model, "--max-tokens", "40"];
    let report = json(&[&args[..], &["--json", "Grüße"]].concat());
    assert_eq!(report["prompt_ids"], serde_json::json!("Grüße".as_bytes()));
    let printed = stdout(&[&args[..], &["Grüße"]].concat());
    assert_eq!(Value::from(printed.trim_end_matches('\n')), report["text"]);
    let mut child = command(&[&args[..], &["-"]].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all("Grüße\n".as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), printed);
}

#[test]
fn traces_do_not_depend_on_chunks() {
    let temp = tempfile::tempdir().unwrap();
    let model = tiny("quark");
    let ids = tiny("oracle_bf16.safetensors");
    let file = |name: &str, how: &[&str]| {
        let out = temp.path().join(name).display().to_string();
        let base = ["trace", "--model", &model, "--ids", &ids, "--out", &out];
        stdout(&[&base[..], how].concat());
        std::fs::read(out).unwrap()
    };
    let expected = file("at once", &[]);
    assert!(expected == file("cut", &["--chunks", "70,30,1,..."]));
    assert!(
        expected
            == file(
                "one by one",
                &["--chunks", "1,...", "--backend", "reference"]
            )
    );
    assert!(expected == file("unfused", &["--unfused", "--threads", "1"]));
    let names: Vec<_> = std::fs::read_dir(temp.path()).unwrap().collect();
    assert_eq!(names.len(), 4, "no temporary file is left");
}

#[test]
fn quantize_writes_what_inspect_reads() {
    let temp = tempfile::tempdir().unwrap();
    let to = temp.path().join("int8").display().to_string();
    let written = json(&["quantize", &tiny("bf16"), &to, "--json"]);
    assert!(written["int8_linears"].as_u64().unwrap() > 0, "{written}");
    let read = json(&["inspect", &to, "--json", "--tensors"]);
    let w8a8 = &read["formats"][0];
    assert_eq!(w8a8["format"], "w8a8");
    assert!(w8a8["parameters"].as_u64().unwrap() > 300_000, "{read}");
    assert_eq!(
        read["parameters"],
        json(&["inspect", &tiny("bf16"), "--json"])["parameters"]
    );
    assert!(!read["tensors"].as_array().unwrap().is_empty());
    let permissions = |name: &str| Path::new(&to).join(name).metadata().unwrap().permissions();
    assert_eq!(permissions("model.safetensors"), permissions("config.json"));
    let nobody = temp.path().join("nobody").display().to_string();
    refused(&["quantize", &to, &nobody], 1, &["int8 already"]);
    assert!(!Path::new(&nobody).exists());
    refused(&["quantize", &tiny("bf16"), &to], 1, &["not empty"]);
}

#[test]
fn synth_writes_what_inspect_and_generate_read() {
    let temp = tempfile::tempdir().unwrap();
    let folder = |name: &str| temp.path().join(name).display().to_string();
    let (to, again) = (folder("tiny"), folder("again"));
    let synth = ["synth", "--preset", "tiny", "--seed", "5"];
    let written = json(&[&synth[..], &[&to, "--json"]].concat());
    assert_eq!(written["preset"], "tiny");
    assert_eq!(written["seed"], 5);
    assert_eq!(written["shards"], serde_json::json!(["model.safetensors"]));
    let read = json(&["inspect", &to, "--json"]);
    assert_eq!(read["notes"], serde_json::json!([]));
    assert_eq!(read["config"]["mtp_layers"], 1);
    assert_eq!(read["tokenizer"], false);
    let generate = |dir: &str, more: &[&str]| {
        let base = ["generate", "--model", dir, "--ids", "1,2,3", "--json"];
        ids(&json(&[&base[..], more].concat()))
    };
    let expected = generate(&to, &[]);
    assert_eq!(expected.len(), 64, "no token ends the text");
    assert_eq!(generate(&to, &["--backend", "reference"]), expected);
    let text = stdout(&[&synth[..], &[&again, "--shard-mib", "1"]].concat());
    assert!(text.contains("tiny of seed 5"), "{text}");
    assert_eq!(generate(&again, &[]), expected);
    refused(&[&synth[..], &[&to]].concat(), 1, &[&to, "not empty"]);
    let preset = ["synth", "--preset", "huge", &folder("huge")];
    refused(&preset, 2, &["huge", "tiny", "mid", "qwen36-layer"]);
    refused(&["synth", &folder("none")], 2, &["--preset"]);
}

#[test]
fn plans_are_known_without_weights() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let model = root
        .join("tests/models/qwen3.6-35b-a3b")
        .display()
        .to_string();
    let fused = json(&["plan", "--model", &model, "--json"]);
    let apart = json(&["plan", "--model", &model, "--json", "--unfused"]);
    let launches = |plan: &Value| plan["launches"].as_u64().unwrap();
    assert!(
        launches(&fused) * 4 < launches(&apart),
        "{} of {}",
        launches(&fused),
        launches(&apart)
    );
    let traffic = |plan: &Value, end: &str| plan["cost"]["traffic"][end].as_u64().unwrap();
    assert!(traffic(&fused, "min") <= traffic(&fused, "max"));
    assert!(traffic(&fused, "max") < traffic(&apart, "max"));
    // Known from the model's card: 33.6 GB of int8, 0.13 of scales, 2.1 of bf16, 1.7 of draft head.
    let weights = fused["cost"]["memory"]["weights"].as_u64().unwrap();
    assert_eq!(weights, 37_520_588_800);
    let table = stdout(&["plan", "--model", &model]);
    for name in [
        "moe_layer",
        "gdn_layer",
        "attention_layer",
        "lm_head_argmax",
        "| all",
    ] {
        assert!(table.contains(name), "{table}");
    }
    let each = stdout(&["plan", "--model", &model, "--each"]);
    assert!(each.lines().count() as u64 > launches(&fused));
}

#[test]
fn devices_lists_both_backends() {
    let devices = json(&["devices", "--json"]);
    let names: Vec<&str> = devices
        .as_array()
        .unwrap()
        .iter()
        .map(|d| d["backend"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["cpu", "reference"]);
    assert!(stdout(&["devices"]).contains("reference"));
}

#[test]
fn instructions_are_a_choice_that_changes_no_token() {
    let with = |level: &str, args: &[&str]| {
        let output = command(args).env("LAYERLET_CPU", level).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let (_, devices, _) = with("portable", &["devices"]);
    assert!(devices.contains("level=portable"), "{devices}");
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
    let (code, tokens, errors) = with("portable", &args);
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(tokens, stdout(&args));
    let (code, _, errors) = with("sse9", &args);
    assert_eq!(code, Some(1));
    for fragment in ["LAYERLET_CPU", "sse9", "portable"] {
        assert!(errors.contains(fragment), "{errors}");
    }
}

#[test]
fn failures_say_what_was_wrong() {
    let model = tiny("quark");
    let generate = |more: &[&str], code, fragments: &[&str]| {
        let base = ["generate", "--model", &model];
        refused(&[&base[..], more].concat(), code, fragments);
    };
    generate(&["--ids", "1,512"], 1, &["--ids", "id 512", "512"]);
    generate(
        &["--ids", "nowhere.json"],
        1,
        &["nowhere.json", "neither a file nor a list"],
    );
    generate(
        &["--ids", "1", "--temperature", "-1"],
        1,
        &["temperature is -1", "0.00001 or more"],
    );
    generate(&["--ids", "1", "--top-p", "0"], 1, &["top_p is 0"]);
    generate(&["--ids", "1", "--max-tokens", "0"], 2, &["--max-tokens"]);
    generate(&["--ids", "1", "--chunk", "0"], 2, &["--chunk"]);
    generate(
        &["--ids", "1", "--temperature", "1e-40"],
        1,
        &["temperature", "0.00001 or more"],
    );
    generate(
        &["--ids", "1", "--max-tokens", "5000"],
        1,
        &["5000 positions are needed", "4096"],
    );
    generate(
        &["--ids", "1", "--max-tokens", "4294967295"],
        1,
        &["4294967295 positions are needed", "4096"],
    );
    generate(&["some text"], 1, &["tokenizer.json", "--ids"]);
    generate(&[], 2, &["--ids"]);
    generate(&["text", "--ids", "1"], 2, &["cannot be used with"]);
    generate(
        &["--ids", "1", "--backend", "gpu"],
        2,
        &["gpu", "reference", "cpu"],
    );
    refused(
        &["generate", "--model", "/nowhere", "--ids", "1"],
        1,
        &["/nowhere", "config.json"],
    );
    let trace = ["trace", "--model", &model, "--ids", "1,2,3", "--out"];
    refused(&[&trace[..], &["/nowhere/t"]].concat(), 1, &["/nowhere/t"]);
    refused(
        &[&trace[..], &["t", "--chunks", "2"]].concat(),
        1,
        &["--chunks", "3 ids"],
    );
    refused(
        &["plan", "--model", &model, "--tokens", "0"],
        2,
        &["--tokens"],
    );
    refused(
        &["plan", "--model", &model, "--context", "4097"],
        1,
        &["4097"],
    );
}

/// A link's target is written, not the link; nothing is left beside it; a device is no file to replace.
#[cfg(unix)]
#[test]
fn traces_follow_links() {
    let temp = tempfile::tempdir().unwrap();
    let (target, link) = (temp.path().join("target"), temp.path().join("link"));
    std::fs::write(&target, "old").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let model = tiny("quark");
    let out = link.display().to_string();
    stdout(&["trace", "--model", &model, "--ids", "1,2", "--out", &out]);
    assert!(link.is_symlink());
    assert!(std::fs::read(&target).unwrap().len() > 1000);
    assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 2);
    stdout(&[
        "trace",
        "--model",
        &model,
        "--ids",
        "1,2",
        "--out",
        "/dev/null",
    ]);
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
}

/// `layerlet inspect DIR | head -1` ends quietly.
#[test]
fn a_closed_pipe_is_no_failure() {
    let mut child = command(&["inspect", &tiny("quark"), "--tensors"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn help_explains_itself() {
    for (name, fragment) in [
        ("generate", "Examples:"),
        ("trace", "--chunks"),
        ("plan", "Examples:"),
        ("bench", "Examples:"),
        ("inspect", "Example:"),
        ("quantize", "Example:"),
        ("synth", "Examples:"),
        ("canary", "Examples:"),
        ("devices", "--json"),
    ] {
        let help = stdout(&[name, "--help"]);
        assert!(help.contains(fragment), "{help}");
        assert!(stdout(&["--help"]).contains(name));
    }
}

#[test]
fn a_watched_run_says_what_was_checked() {
    let model = tiny("quark");
    let base = [
        "generate",
        "--model",
        &model,
        "--ids",
        "3,141,59",
        "--max-tokens",
        "3",
    ];
    let plain = stdout(&base);
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept").display().to_string();
    let shadow = [
        "--shadow",
        "1/1",
        "--shadow-dir",
        &kept,
        "--shadow-policy",
        "stop",
    ];
    let output = layerlet(&[&base[..], &shadow].concat());
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), plain);
    assert!(errors.contains("launches checked, 0 differ"), "{errors}");
    assert!(!errors.contains("shadow: 0 of"), "{errors}");
    assert!(!folder.path().join("kept").exists());
    let wrong = [&base[..], &["--shadow", "2/1"]].concat();
    refused(&wrong, 2, &["--shadow", "1/1000"]);
    let alone = [&base[..], &["--shadow-policy", "stop"]].concat();
    refused(&alone, 2, &["--shadow"]);
}
