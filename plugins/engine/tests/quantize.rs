//! `quantize` against the oracle's int8 checkpoint, byte for byte.

mod common;

use common::{Draft, tiny};
use layerlet_engine::checkpoint::{Checkpoint, Stored};
use layerlet_engine::quantize::quantize;
use std::cell::Cell;
use std::path::Path;

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn gives_the_oracles_file() {
    for source in ["bf16", "hf"] {
        let to = tempfile::tempdir().expect("a temporary folder");
        let seen = Cell::new((0, 0));
        let done = quantize(&tiny(source), to.path(), u64::MAX, &|n, of| {
            seen.set((n, of))
        });
        let done = done.expect(source);
        assert_eq!(done.shards, ["model.safetensors"]);
        assert_eq!(seen.get(), (done.bytes, done.bytes));
        let (ours, theirs) = (to.path(), tiny("quark"));
        if source == "bf16" {
            assert!(
                read(&ours.join("model.safetensors")) == read(&theirs.join("model.safetensors"))
            );
        }
        let config = |dir: &Path| -> serde_json::Value {
            serde_json::from_slice(&read(&dir.join("config.json"))).expect("JSON")
        };
        let (ours, theirs) = (config(ours), config(&theirs));
        assert_eq!(ours["quantization_config"], theirs["quantization_config"]);
        assert_eq!(ours["model_type"], theirs["model_type"]);
        assert_eq!(ours["architectures"], theirs["architectures"]);
        let opened = Checkpoint::open(to.path()).expect("opens");
        assert_eq!(opened.notes(), [""; 0]);
        let int8 = opened.weights().iter().filter(|w| w.stored == Stored::Int8);
        assert_eq!(int8.count(), 3 * 5 + 4 + 4 * 4);
    }
}

#[test]
fn shards_hold_the_same_tensors() {
    let to = tempfile::tempdir().expect("a temporary folder");
    let done = quantize(&tiny("bf16"), to.path(), 100_000, &|_, _| {}).expect("quantises");
    assert_eq!(done.shards.len(), 6);
    assert_eq!(done.shards[0], "model-00001-of-00006.safetensors");
    let sharded = Checkpoint::open(to.path()).expect("opens");
    let single = Checkpoint::open(&tiny("quark")).expect("opens");
    let content = |c: &Checkpoint| -> Vec<(String, Vec<u8>)> {
        let names = c.files().names();
        names
            .map(|(n, t)| (n.to_string(), c.files().bytes(t).to_vec()))
            .collect()
    };
    assert!(content(&sharded) == content(&single));
}

#[test]
fn an_index_that_lies_is_refused() {
    let to = tempfile::tempdir().expect("a temporary folder");
    quantize(&tiny("bf16"), to.path(), 300_000, &|_, _| {}).expect("quantises");
    let path = to.path().join("model.safetensors.index.json");
    let index: serde_json::Value = serde_json::from_slice(&read(&path)).expect("JSON");
    let check = |change: &dyn Fn(&mut serde_json::Map<String, serde_json::Value>), expect: &str| {
        let mut changed = index.clone();
        change(changed["weight_map"].as_object_mut().expect("an object"));
        std::fs::write(&path, changed.to_string()).expect("writes");
        let error = Checkpoint::open(to.path())
            .err()
            .expect("refused")
            .to_string();
        assert_eq!(error, expect);
    };
    let two = "model-00002-of-00002.safetensors";
    check(
        &|map| drop(map.remove("lm_head.weight")),
        &format!("{two}: tensor lm_head.weight: model.safetensors.index.json does not list it"),
    );
    check(
        &|map| drop(map.insert("ghost".into(), two.into())),
        &format!(
            "{two}: tensor ghost: model.safetensors.index.json says {two} holds it, no listed shard does"
        ),
    );
    check(
        &|map| drop(map.insert("lm_head.weight".into(), "../x.safetensors".into())),
        "model.safetensors.index.json: shard \"../x.safetensors\" is not the name of a file in the same folder",
    );
    std::fs::write(to.path().join("model.safetensors"), b"").expect("writes");
    let error = Checkpoint::open(to.path())
        .err()
        .expect("refused")
        .to_string();
    assert!(error.ends_with("which one is the model?"), "{error}");
}

#[test]
fn what_cannot_be_quantised_is_refused_by_name() {
    let check = |draft: &Draft, expect: &str| {
        let from = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(from.path().join("config.json"), draft.config.to_string()).expect("writes");
        std::fs::write(from.path().join("model.safetensors"), draft.file()).expect("writes");
        let to = from.path().join("out");
        let error = quantize(from.path(), &to, u64::MAX, &|_, _| {})
            .err()
            .expect("refused");
        assert_eq!(error.to_string(), expect);
    };
    let mut draft = Draft::read("bf16");
    let down = draft.get("model.layers.1.mlp.experts.down_proj");
    let nan = half::bf16::NAN.to_le_bytes();
    down.data[2 * (64 * 32 * 3 + 32 * 5)..][..2].copy_from_slice(&nan);
    check(
        &draft,
        "tensor model.layers.1.mlp.experts.down_proj, row 197: NaN cannot be quantised",
    );
    check(
        &Draft::read("quark"),
        "layers.0.linear_attn.in_proj_qkv is int8 already",
    );
}
