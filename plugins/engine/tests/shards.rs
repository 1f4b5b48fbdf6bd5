//! Checkpoints in several files: the index and the shards must say the same.

mod common;

use common::Draft;
use common::loaded::load;
use common::micro::micro;
use layerlet_engine::checkpoint::{Checkpoint, INDEX};
use serde_json::{Value, json};
use std::path::Path;
use tempfile::TempDir;

const ONE: &str = "model-00001-of-00002.safetensors";
const TWO: &str = "model-00002-of-00002.safetensors";
const NORM: &str = "model.norm.weight";

/// A small checkpoint in two shards, with its index as JSON.
struct Sharded {
    folder: TempDir,
    one: Draft,
    two: Draft,
    index: Value,
}

impl Sharded {
    fn new() -> Sharded {
        let mut one = micro();
        let mut two = one.clone();
        let half = one.tensors.len() / 2;
        two.tensors = one.tensors.split_off(half);
        let mut map = serde_json::Map::new();
        for (shard, draft) in [(ONE, &one), (TWO, &two)] {
            map.extend(draft.tensors.iter().map(|t| (t.name.clone(), shard.into())));
        }
        let sharded = Sharded {
            folder: tempfile::tempdir().expect("a temporary folder"),
            one,
            two,
            index: json!({ "metadata": { "total_size": 0 }, "weight_map": map }),
        };
        assert_eq!(sharded.index["weight_map"][NORM], TWO);
        sharded
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write(&self) {
        let write = |name: &str, content: &[u8]| {
            std::fs::write(self.path().join(name), content).expect("writes");
        };
        write("config.json", self.one.config.to_string().as_bytes());
        write(INDEX, self.index.to_string().as_bytes());
        write(ONE, &self.one.file());
        write(TWO, &self.two.file());
    }

    fn open(&self) -> Result<Checkpoint, String> {
        Checkpoint::open(self.path()).map_err(|e| e.to_string())
    }

    fn refusal(&self) -> String {
        self.open().err().expect("refused")
    }
}

#[test]
fn two_shards_are_the_same_model_as_one_file() {
    let sharded = Sharded::new();
    sharded.write();
    let whole = load(&micro().open().expect("opens"));
    assert!(load(&sharded.open().expect("opens")) == whole);
}

#[test]
fn a_shard_that_is_not_there_is_named() {
    let sharded = Sharded::new();
    sharded.write();
    let shard = sharded.path().join(TWO);
    std::fs::remove_file(&shard).expect("it was there");
    let found = sharded.refusal();
    assert!(
        found.starts_with(&format!("{}: ", shard.display())),
        "{found}"
    );
    std::fs::write(&shard, b"").expect("writes");
    let expect = format!("{TWO}: 0 bytes are too few for a safetensors file");
    assert_eq!(sharded.refusal(), expect);
    std::fs::remove_file(&shard).expect("it was there");
    std::fs::create_dir(&shard).expect("a folder in its place");
    let found = sharded.refusal();
    assert!(
        found.starts_with(&format!("{}: ", shard.display())),
        "{found}"
    );
}

#[test]
fn a_tensor_is_in_the_one_shard_that_the_index_says() {
    let check = |change: &dyn Fn(&mut Sharded), expect: &str| {
        let mut sharded = Sharded::new();
        change(&mut sharded);
        sharded.write();
        assert_eq!(sharded.refusal(), expect);
    };
    let says = format!("{INDEX} says");
    check(
        &|s| drop(s.two.remove(NORM)),
        &format!("{TWO}: tensor {NORM}: {says} {TWO} holds it, no listed shard does"),
    );
    check(
        &|s| s.index["weight_map"][NORM] = ONE.into(),
        &format!("{ONE}: tensor {NORM}: {says} {ONE} holds it, {TWO} does"),
    );
    check(
        &|s| {
            let again = s.two.get(NORM).clone();
            s.one.tensors.push(again);
        },
        &format!("{TWO}: tensor {NORM}: {ONE} holds it too"),
    );
    // Listed nowhere, wherever it is and whatever it would be.
    check(
        &|s| {
            let mut more = s.two.get(NORM).clone();
            more.name = "model.visual.norm.weight".into();
            s.one.tensors.push(more);
        },
        &format!("{ONE}: tensor model.visual.norm.weight: {INDEX} does not list it"),
    );
    // Gone from both: the checkpoint agrees with itself, but not with the model.
    check(
        &|s| {
            s.two.remove(NORM);
            let map = s.index["weight_map"].as_object_mut().expect("an object");
            map.remove(NORM);
        },
        &format!("{INDEX}: no tensor norm.weight"),
    );
    // Twice under two names, each in a shard of its own.
    check(
        &|s| {
            let mut again = s.two.get(NORM).clone();
            again.name = "model.language_model.norm.weight".into();
            s.index["weight_map"][&again.name] = ONE.into();
            s.one.tensors.push(again);
        },
        &format!("{TWO}: tensor {NORM}: model.language_model.norm.weight names the same parameter"),
    );
}

#[test]
fn an_index_that_is_none_is_refused() {
    let check = |index: &str, expect: &str| {
        let sharded = Sharded::new();
        sharded.write();
        std::fs::write(sharded.path().join(INDEX), index).expect("writes");
        let found = sharded.refusal();
        let expect = format!("{INDEX}: {expect}");
        assert!(found.starts_with(&expect), "{found}, expected {expect}");
    };
    check("", "EOF while parsing");
    check("{}", "missing field `weight_map`");
    check(r#"{"weight_map": {"a": 1}}"#, "invalid type: integer `1`");
    check(r#"{"weight_map": {}}"#, "no tensor embed_tokens.weight");
    for elsewhere in ["../x", "/etc/passwd", "a/b", "", ".", "..", "./x"] {
        let index = json!({ "weight_map": { "a": elsewhere } }).to_string();
        let expect = format!("shard {elsewhere:?} is not the name of a file in the same folder");
        check(&index, &expect);
    }
}

#[test]
fn a_folder_without_weights_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let refusal = || {
        let opened = Checkpoint::open(folder.path());
        opened.err().expect("refused").to_string()
    };
    let config = folder.path().join("config.json");
    let found = refusal();
    assert!(
        found.starts_with(&format!("{}: ", config.display())),
        "{found}"
    );
    std::fs::write(&config, micro().config.to_string()).expect("writes");
    let expect = format!(
        "{}: neither model.safetensors nor {INDEX} is there",
        folder.path().display()
    );
    assert_eq!(refusal(), expect);
}
