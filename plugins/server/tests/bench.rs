//! `layerlet bench` as a process: its JSON, its tables, its page. No test looks at a time.

mod common;

use common::*;
use serde_json::{Value, json};

fn bench(more: &[&str]) -> Vec<String> {
    let model = tiny("quark");
    let base = [
        "bench",
        "--model",
        &model,
        "--prompt",
        "8",
        "--generate",
        "2",
        "--repeats",
        "2",
    ];
    let small = ["--read-buffer", "1", "--threads", "2"];
    let words = [&base[..], &small, more].concat();
    words.into_iter().map(String::from).collect()
}

fn words(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

fn keys(value: &Value) -> Vec<&str> {
    let object = value
        .as_object()
        .unwrap_or_else(|| panic!("{value} is no object"));
    let mut keys: Vec<&str> = object.keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

fn count(value: &Value) -> usize {
    value
        .as_array()
        .unwrap_or_else(|| panic!("{value} is no list"))
        .len()
}

/// What other programs read.
#[test]
fn the_schema_of_the_json() {
    let report = json(&words(&bench(&[
        "--batch",
        "1,3",
        "--contexts",
        "9",
        "--json",
    ])));
    let expect = [
        "contexts",
        "decode",
        "decode_operations",
        "device",
        "fused",
        "memory",
        "prefill",
        "prefill_operations",
        "read_bandwidth",
        "settings",
        "threads",
    ];
    assert_eq!(keys(&report), expect);
    assert_eq!(
        keys(&report["memory"]),
        ["peak_resident", "state", "weights"]
    );
    let prefill = [
        "movement",
        "time_to_first_token_seconds",
        "tokens_per_second",
    ];
    assert_eq!(keys(&report["prefill"]), prefill);
    let decode = &report["decode"];
    assert_eq!((count(decode), count(&report["contexts"])), (2, 1));
    let expect = ["batch", "context", "movement", "tokens_per_second"];
    assert_eq!(keys(&decode[1]), expect);
    assert_eq!(
        (&decode[1]["batch"], &decode[1]["context"]),
        (&json!(3), &json!(8))
    );
    assert_eq!(
        keys(&decode[0]["tokens_per_second"]),
        ["max", "median", "min", "samples"]
    );
    assert_eq!(count(&decode[0]["tokens_per_second"]["samples"]), 2);
    let expect = [
        "bytes_per_second",
        "bytes_per_token",
        "share_of_read_bandwidth",
        "work",
    ];
    assert_eq!(keys(&decode[0]["movement"]), expect);
    let expect = ["bf16_multiply_adds", "bytes", "int8_multiply_adds"];
    assert_eq!(keys(&decode[0]["movement"]["work"]), expect);
    let operation = &report["decode_operations"][0];
    assert_eq!(
        keys(operation),
        ["launches", "name", "seconds", "share", "work"]
    );
    assert_eq!(report["read_bandwidth"]["buffer_bytes"], 1 << 20);
    assert_eq!(
        (&report["threads"], &report["fused"]),
        (&json!(2), &json!(true))
    );
    assert_eq!(report["settings"]["batches"], json!([1, 3]));
}

fn names(report: &Value, phase: &str) -> Vec<String> {
    let operations = report[phase].as_array().expect("a list").iter();
    operations
        .map(|o| o["name"].as_str().expect("a name").to_string())
        .collect()
}

#[test]
fn unfused_operations_show_what_layerlets_hide() {
    let fused = json(&words(&bench(&["--json"])));
    let apart = json(&words(&bench(&["--json", "--unfused"])));
    for phase in ["prefill_operations", "decode_operations"] {
        let (fused, apart) = (names(&fused, phase), names(&apart, phase));
        let hidden =
            |name: &str| apart.iter().any(|n| n == name) && !fused.iter().any(|n| n == name);
        assert!(fused.iter().any(|n| n == "moe_layer"), "{fused:?}");
        assert!(
            hidden("grouped_linear_w8a8") && hidden("paged_attention"),
            "{apart:?}"
        );
    }
    let multiply_adds =
        |r: &Value| r["decode"][0]["movement"]["work"]["int8_multiply_adds"].clone();
    assert_eq!(multiply_adds(&fused), multiply_adds(&apart));
}

#[test]
fn tables_for_people() {
    let text = stdout(&words(&bench(&["--batch", "2"])));
    for word in [
        "prefill of 8",
        "decode, batch 2 after 8",
        "of read bandwidth",
        "time to first token",
        "weights",
        "2 threads over 1.0 MiB",
        "moe_layer",
        "int8 GOP/s",
    ] {
        assert!(text.contains(word), "no {word:?} in\n{text}");
    }
    let brief = stdout(&words(&bench(&["--brief", "--context", "0"])));
    assert!(
        brief.contains("decode, batch 1 after 0") && !brief.contains("moe_layer"),
        "{brief}"
    );
}

#[test]
fn a_report_is_a_page_and_its_numbers() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("new/report");
    let path = dir.display().to_string();
    let printed = json(&words(&bench(&["--report", &path, "--json"])));
    let written = std::fs::read_to_string(dir.join("report.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), printed);
    assert_eq!(printed["settings"]["batches"], json!([1, 2, 4, 8]));
    assert_eq!(printed["settings"]["contexts"], json!([16, 32, 64]));
    let page = std::fs::read_to_string(dir.join("index.html")).unwrap();
    for title in [
        "layerlet bench: quark",
        "Decode over batch, after 8 tokens each",
        "Decode over context, one sequence",
        "A decode step by operation, batch 1",
        "Prefill of 8 tokens by operation",
        "Roofline",
    ] {
        assert!(page.contains(title), "no {title:?}");
    }
    for axis in [
        "sequences decoded together",
        "tokens before the first decoded one",
        "tokens/s, all sequences together",
        "share of the time, %",
        "operations per byte",
        "GOP/s",
    ] {
        assert!(page.contains(axis), "no axis {axis:?}");
    }
    assert_eq!(page.matches("<svg").count(), 5);
    for name in names(&printed, "decode_operations") {
        assert!(page.contains(&name), "no {name}");
    }
    assert!(!page.contains("<script") && !page.contains("NaN"));
}

#[test]
fn bad_flags_are_refused() {
    let refuse = |more: &[&str], code, fragments: &[&str]| {
        refused(&words(&bench(more)), code, fragments);
    };
    refuse(&["--batch", "1,0"], 2, &["--batch"]);
    refuse(&["--batch", "many"], 2, &["--batch"]);
    refuse(&["--chunk", "0"], 2, &["--chunk"]);
    refuse(&["--brief", "--report", "x"], 2, &["--brief", "--report"]);
    refuse(
        &["--contexts", "20,10"],
        1,
        &["further contexts is [20, 10]", "above 8"],
    );
    refuse(
        &["--context", "4095"],
        1,
        &["4097 positions are needed", "4096"],
    );
    refuse(&["--report", "/dev/null/report"], 1, &["/dev/null/report"]);
    refused(
        &["bench", "--model", "/nowhere"],
        1,
        &["/nowhere", "config.json"],
    );
    for flag in ["--prompt", "--generate", "--repeats", "--read-buffer"] {
        refused(&["bench", "--model", "x", flag, "0"], 2, &[flag]);
    }
}
