//! Damaged checkpoints and tokenizers: no panic, no hang, no memory out of proportion; an error that
//! names the file, or exactly what the valid files hold.
//!
//! `LAYERLET_FUZZ_CASES` sets the number of cases of each test.

mod common;
mod fuzz;

use common::micro::micro;
use fuzz::mutate::Files;
use fuzz::verdict::Valid;
use fuzz::{Target, cases};
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
    fuzz("bf16", dir.path(), 600);
}

#[test]
fn damaged_sharded_int8_checkpoints_are_refused_or_right() {
    let (from, to) = (tempfile::tempdir(), tempfile::tempdir());
    let (from, to) = (from.expect("a folder"), to.expect("a folder"));
    micro().write(from.path());
    let done = quantize(from.path(), to.path(), 1200, &|_, _| {}).expect("quantises");
    assert!(done.shards.len() > 1, "{:?}", done.shards);
    fuzz("int8", to.path(), 600);
}
