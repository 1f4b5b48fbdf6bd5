//! Synthetic checkpoints: one seed, the same bytes; what the loader makes of them; what is refused.

use layerlet_engine::checkpoint::{Checkpoint, Stored};
use layerlet_engine::synth::{Preset, Synthesized, synthesize};
use safetensors::SafeTensors;
use sha2::{Digest, Sha256};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;

fn tiny(seed: u64, to: &Path) -> Synthesized {
    synthesize(Preset::Tiny, seed, to, u64::MAX, &|_, _| {}).expect("written")
}

fn sha256(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Every tensor of a checkpoint in one file.
fn tensors(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let bytes = std::fs::read(folder.join("model.safetensors")).expect("a file");
    let file = SafeTensors::deserialize(&bytes).expect("well-formed");
    let content = |(name, view): (&str, safetensors::tensor::TensorView)| {
        (name.to_string(), view.data().to_vec())
    };
    file.iter().map(content).collect()
}

/// A change of these digests changes every measurement that names a preset and a seed.
#[test]
fn a_seed_gives_the_same_bytes_everywhere() {
    let to = tempfile::tempdir().expect("a temporary folder");
    tiny(7, to.path());
    let check = |file: &str, expect: &str| assert_eq!(sha256(&to.path().join(file)), expect);
    check(
        "config.json",
        "f7b363079f0a41f9a5cba1d5c4666324c725782294b7866890c3ce90a08150ad",
    );
    check(
        "model.safetensors",
        "593b328deff44f02c7d5e85914222de03211dea2ba1299b0c331d5bdd6c59ada",
    );
}

#[test]
fn another_seed_gives_other_tensors() {
    let folders = [7, 8].map(|seed| {
        let to = tempfile::tempdir().expect("a temporary folder");
        tiny(seed, to.path());
        to
    });
    let [first, second] = folders.each_ref().map(|to| tensors(to.path()));
    assert!(first.keys().eq(second.keys()));
    for (name, bytes) in &first {
        assert!(bytes != &second[name], "{name}");
    }
    let mut seen: Vec<&Vec<u8>> = first.values().collect();
    seen.sort();
    assert!(
        seen.windows(2).all(|pair| pair[0] != pair[1]),
        "no tensor is another's copy"
    );
}

#[test]
fn the_loader_finds_everything_in_place() {
    let to = tempfile::tempdir().expect("a temporary folder");
    let done = tiny(1, to.path());
    assert_eq!(done.shards, ["model.safetensors"]);
    let opened = Checkpoint::open(to.path()).expect("opens");
    assert_eq!(opened.notes(), [""; 0]);
    assert_eq!(opened.config.model, Preset::Tiny.config());
    let int8 = opened.weights().iter().filter(|w| w.stored == Stored::Int8);
    let pieces: usize = int8.map(|w| w.pieces.len()).sum();
    assert_eq!(pieces, done.linears);
    // Three layers of five linears and one of four, each with a shared expert and eight others of three.
    assert_eq!(done.linears, 3 * 5 + 4 + 4 * 3 * (1 + 8));
    assert_eq!(
        opened.spec().formats,
        opened.config.announced_spec().formats
    );
}

#[test]
fn shards_hold_the_same_tensors() {
    let [whole, cut] = [(); 2].map(|()| tempfile::tempdir().expect("a temporary folder"));
    tiny(3, whole.path());
    let seen = Cell::new((0, 0));
    let progress = |done, of| seen.set((done, of));
    let done = synthesize(Preset::Tiny, 3, cut.path(), 100_000, &progress).expect("written");
    assert!(done.shards.len() > 5);
    assert_eq!(seen.get(), (done.bytes, done.bytes));
    let opened = Checkpoint::open(cut.path()).expect("opens");
    for (name, bytes) in tensors(whole.path()) {
        let tensor = opened.files().find(&name).expect("listed");
        assert!(opened.files().bytes(tensor) == bytes, "{name}");
    }
}

#[test]
fn codes_use_the_whole_range() {
    let to = tempfile::tempdir().expect("a temporary folder");
    tiny(2, to.path());
    let opened = Checkpoint::open(to.path()).expect("opens");
    let mut seen = [false; 256];
    for weight in opened.weights().iter().filter(|w| w.stored == Stored::Int8) {
        for piece in &weight.pieces {
            for &byte in opened.files().bytes(piece.weight) {
                seen[usize::from(byte)] = true;
            }
        }
    }
    let absent: Vec<u8> = (0..=255).filter(|&b| !seen[usize::from(b)]).collect();
    assert_eq!(absent, [128], "only -128 is no code");
}

#[test]
fn what_exists_is_not_overwritten() {
    let to = tempfile::tempdir().expect("a temporary folder");
    let refusal = |to: &Path| {
        let refused = synthesize(Preset::Tiny, 0, to, u64::MAX, &|_, _| {});
        refused.expect_err("refused").to_string()
    };
    std::fs::write(to.path().join("precious"), "content").expect("writes");
    let expect = format!("{}: the folder is not empty", to.path().display());
    assert_eq!(refusal(to.path()), expect);
    let file = to.path().join("precious");
    assert!(refusal(&file).starts_with(&file.display().to_string()));
    assert_eq!(std::fs::read(&file).expect("still there"), b"content");
}

#[test]
fn an_interrupted_run_leaves_nothing_that_opens() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let to = parent.path().join("a/b");
    let stopped = std::panic::catch_unwind(|| {
        // Whenever the process is killed, the folder is as this callback finds it.
        let stop = |done: u64, of: u64| {
            assert!(Checkpoint::open(&to).is_err());
            assert!(!to.join("unfinished/config.json").exists());
            assert!(done < of / 2, "stopped half way");
        };
        synthesize(Preset::Tiny, 0, &to, 100_000, &stop)
    });
    assert!(stopped.is_err());
    assert!(!parent.path().join("a").exists());
}
