//! Damaged checkpoints and tokenizers: no panic, no hang, no memory out of proportion; an error that
//! names the file, or exactly what the valid files hold.
//!
//! `LAYERLET_FUZZ_CASES` sets the number of cases of each test.

mod common;
mod fuzz;

use common::micro::micro;
use common::words;
use fuzz::mutate::Files;
use fuzz::verdict::Valid;
use fuzz::{Target, cases};
use layerlet_engine::Tokenizer;
use layerlet_engine::quantize::quantize;
use peak_alloc::PeakAlloc;
use std::path::Path;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

fn read_folder(dir: &Path) -> Files {
    let files = std::fs::read_dir(dir).expect("a folder").map(|file| {
        let file = file.expect("a file");
        let content = std::fs::read(file.path()).expect("a file");
        (file.file_name().into_string().expect("a name"), content)
    });
    files.collect()
}

fn fuzz(name: &'static str, dir: &Path, default: u64) {
    let files = read_folder(dir);
    let valid = Valid::read(dir, &files);
    let target = Target {
        name,
        files: &files,
        check: &|dir, files| valid.judge(dir, files),
        memory: &MEMORY,
        // A list of layers and an excluded pattern have fixed limits.
        spare: 4 << 20,
    };
    assert!(
        target.run_regressions() > 0,
        "{name} has regressions to run"
    );
    target.run(cases(default));
}

#[test]
fn damaged_bf16_checkpoints_are_refused_or_right() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    micro().write(dir.path());
    fuzz("bf16", dir.path(), 400);
}

#[test]
fn damaged_sharded_int8_checkpoints_are_refused_or_right() {
    let (from, to) = (tempfile::tempdir(), tempfile::tempdir());
    let (from, to) = (from.expect("a folder"), to.expect("a folder"));
    micro().write(from.path());
    let generation = from.path().join("generation_config.json");
    std::fs::write(generation, r#"{"eos_token_id": [1, 2]}"#).expect("writes");
    let done = quantize(from.path(), to.path(), 1200, &|_, _| {}).expect("quantises");
    assert!(done.shards.len() > 1, "{:?}", done.shards);
    fuzz("int8", to.path(), 400);
}

#[test]
fn damaged_tokenizers_are_refused_or_work() {
    const TEXT: &str = "hello w\u{f6}rld 1234 \u{d55c}\u{ae00} \u{1f600}\n\n <|im_end|></think>";
    let dir = tempfile::tempdir().expect("a temporary folder");
    words::write(dir.path());
    let files = read_folder(dir.path());
    let check = |dir: &Path, _: &Files| {
        let opened = match Tokenizer::open(dir) {
            Ok(opened) => opened.expect("there is a file"),
            Err(e) if e.to_string().contains("tokenizer.json") => return Ok(()),
            Err(e) => return Err(format!("the error names no file: {e}")),
        };
        // Either may be refused, but not with a panic.
        if let Ok(ids) = opened.encode(TEXT) {
            let mut stream = opened.stream();
            for id in ids {
                let _ = stream.push(id);
            }
            let _ = stream.finish();
        }
        let _ = opened.decode(&[0, 97, 255, 258, 259, 260, 261, u32::MAX]);
        Ok(())
    };
    let target = Target {
        name: "tokenizer",
        files: &files,
        check: &check,
        memory: &MEMORY,
        // The crate's regular expressions have limits of their own.
        spare: 64 << 20,
    };
    target.run_regressions();
    target.run(cases(200));
}
