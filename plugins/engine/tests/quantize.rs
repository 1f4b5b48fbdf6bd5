//! `quantize` against the oracle's int8 checkpoint, byte for byte.

mod common;

use common::micro::with_mtp;
use common::{Draft, tiny};
use layerlet_engine::checkpoint::{Checkpoint, Stored};
use layerlet_engine::quantize::quantize;
use safetensors::{Dtype, SafeTensors};
use std::cell::Cell;
use std::path::Path;

/// Names of a folder's entries, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let name = |e: std::io::Result<std::fs::DirEntry>| {
        let name = e.expect("an entry").file_name();
        name.into_string().expect("a plain name")
    };
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort();
    names
}

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
    const LIMIT: u64 = 100_000;
    let done = quantize(&tiny("bf16"), to.path(), LIMIT, &|_, _| {}).expect("quantises");
    let sharded = Checkpoint::open(to.path()).expect("opens");
    let listed: Vec<&str> = sharded.files().files().collect();
    assert_eq!(done.shards, listed);
    let count = done.shards.len() as u64;
    assert!(count >= done.bytes.div_ceil(LIMIT), "{count} shards");
    assert_eq!(
        done.shards[1],
        format!("model-00002-of-{count:05}.safetensors")
    );
    for shard in &done.shards {
        let bytes = read(&to.path().join(shard));
        let file = SafeTensors::deserialize(&bytes).expect("well-formed");
        let size: usize = file.iter().map(|(_, view)| view.data().len()).sum();
        assert!(size as u64 <= LIMIT, "{shard} holds {size} bytes");
    }
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

/// However the text model's tensors are spelled, the copy has one spelling: the oracle's, byte for byte.
#[test]
fn spellings_do_not_show() {
    for prefix in ["", "model.language_model."] {
        let mut draft = Draft::read("bf16");
        for tensor in &mut draft.tensors {
            if let Some(rest) = tensor.name.strip_prefix("model.") {
                tensor.name = format!("{prefix}{rest}");
            }
        }
        let from = tempfile::tempdir().expect("a temporary folder");
        draft.write(from.path());
        let to = from.path().join("out");
        quantize(from.path(), &to, u64::MAX, &|_, _| {}).expect("written");
        let (ours, theirs) = (to.join("model.safetensors"), tiny("quark"));
        assert!(
            read(&ours) == read(&theirs.join("model.safetensors")),
            "{prefix:?}"
        );
    }
}

#[test]
fn what_cannot_be_quantised_is_refused_by_name() {
    let check = |draft: &Draft, expect: &str| {
        let from = tempfile::tempdir().expect("a temporary folder");
        draft.write(from.path());
        let to = from.path().join("out");
        let error = quantize(from.path(), &to, u64::MAX, &|_, _| {}).expect_err("refused");
        let folder = from.path().display().to_string();
        assert_eq!(error.to_string().replace(&folder, "DIR"), expect);
        assert!(!to.exists(), "the folder that was made is gone again");
    };
    let mut draft = Draft::read("bf16");
    let down = draft.get("model.layers.1.mlp.experts.down_proj");
    let nan = half::bf16::NAN.to_le_bytes();
    down.data[2 * (64 * 32 * 3 + 32 * 5)..][..2].copy_from_slice(&nan);
    check(
        &draft,
        "tensor model.layers.1.mlp.experts.down_proj, row [3, 5]: NaN cannot be quantised",
    );
    check(
        &Draft::read("quark"),
        "DIR: layers.0.linear_attn.in_proj_qkv is int8 already",
    );
}

#[test]
fn a_row_of_an_up_projection_is_named_as_the_file_counts() {
    let from = tempfile::tempdir().expect("a temporary folder");
    let mut draft = Draft::read("bf16");
    let fused = draft.get("model.layers.0.mlp.experts.gate_up_proj");
    assert_eq!(fused.shape, [8, 64, 64]);
    let infinite = half::bf16::NEG_INFINITY.to_le_bytes();
    fused.data[2 * 64 * (64 * 7 + 40)..][..2].copy_from_slice(&infinite);
    draft.write(from.path());
    let error =
        quantize(from.path(), &from.path().join("out"), 1, &|_, _| {}).expect_err("refused");
    assert_eq!(
        error.to_string(),
        "tensor model.layers.0.mlp.experts.gate_up_proj, row [7, 40]: -inf cannot be quantised"
    );
}

#[test]
fn companions_go_along_byte_for_byte() {
    let (from, to) = (tempfile::tempdir(), tempfile::tempdir());
    let (from, to) = (from.expect("a folder"), to.expect("a folder"));
    Draft::read("bf16").write(from.path());
    let copied = [
        "chat_template.jinja",
        "generation_config.json",
        "merges.txt",
        "tokenizer.json",
    ];
    for name in copied {
        std::fs::write(from.path().join(name), format!("{{}} {name}")).expect("writes");
    }
    std::fs::write(from.path().join("generation_config.json"), "{}").expect("writes");
    for name in ["optimizer.pt", ".gitattributes"] {
        std::fs::write(from.path().join(name), "not a companion").expect("writes");
    }
    let done = quantize(from.path(), to.path(), u64::MAX, &|_, _| {}).expect("quantises");
    assert_eq!(done.copied, copied);
    for name in copied {
        assert_eq!(read(&to.path().join(name)), read(&from.path().join(name)));
    }
    let mut expect = copied.to_vec();
    expect.extend(["config.json", "model.safetensors"]);
    expect.sort();
    assert_eq!(names(to.path()), expect);
}

#[test]
fn what_exists_is_not_overwritten() {
    let to = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(to.path().join("config.json"), "precious").expect("writes");
    let refusal = |to: &Path| {
        let error = quantize(&tiny("bf16"), to, u64::MAX, &|_, _| {});
        error.expect_err("refused").to_string()
    };
    let expect = format!("{}: the folder is not empty", to.path().display());
    assert_eq!(refusal(to.path()), expect);
    assert_eq!(names(to.path()), ["config.json"]);
    assert_eq!(read(&to.path().join("config.json")), b"precious");
    let file = to.path().join("config.json");
    assert!(refusal(&file).starts_with(&file.display().to_string()));
    assert_eq!(read(&file), b"precious");
}

#[test]
fn an_interrupted_run_leaves_nothing_that_opens() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let to = parent.path().join("a/b");
    let calls = Cell::new(0);
    // Whenever the process is killed, the folder is as this callback finds it.
    let watch = |_, _| {
        calls.set(calls.get() + 1);
        assert_eq!(names(&to), ["unfinished"]);
        assert!(Checkpoint::open(&to).is_err());
        assert!(!to.join("unfinished/config.json").exists());
    };
    quantize(&tiny("bf16"), &to, 100_000, &watch).expect("quantises");
    assert!(calls.get() > 10);
    assert!(Checkpoint::open(&to).is_ok());
    assert!(!names(&to).contains(&"unfinished".to_string()));

    let to = parent.path().join("c/d");
    let stopped = std::panic::catch_unwind(|| {
        let stop = |done: u64, of: u64| assert!(done < of / 2, "stopped half way");
        quantize(&tiny("bf16"), &to, 100_000, &stop)
    });
    assert!(stopped.is_err());
    assert_eq!(names(parent.path()), ["a"]);

    // Something in the way of a file that is moved out: what makes it a checkpoint is not there.
    let obstacle = to.join("model.safetensors");
    let block = |_, _| std::fs::create_dir_all(obstacle.join("x")).expect("a folder");
    let blocked = quantize(&tiny("bf16"), &to, u64::MAX, &block);
    let error = blocked.expect_err("refused").to_string();
    assert!(
        error.starts_with(&obstacle.display().to_string()),
        "{error}"
    );
    assert_eq!(names(&to), ["model.safetensors"]);
    std::fs::remove_dir_all(&obstacle).expect("removes");

    let left = to.join("unfinished");
    std::fs::create_dir_all(&left).expect("a folder");
    let error = quantize(&tiny("bf16"), &to, u64::MAX, &|_, _| {});
    assert_eq!(
        error.expect_err("refused").to_string(),
        format!(
            "{}: an earlier run did not finish; remove the folder to start again",
            left.display()
        )
    );
}

#[test]
fn progress_only_grows_and_ends_at_the_total() {
    let to = tempfile::tempdir().expect("a temporary folder");
    let seen = Cell::new((0, 0));
    let done = quantize(&tiny("hf"), to.path(), 100_000, &|done, of| {
        let (before, total) = seen.replace((done, of));
        assert!(done > before && done <= of);
        assert!(total == 0 || total == of);
    });
    let bytes = done.expect("quantises").bytes;
    assert_eq!(seen.get(), (bytes, bytes));
}

/// Prediction head and vision tower stay as they are, and the exclude list says so.
#[test]
fn what_is_not_a_layers_linear_is_copied() {
    let (from, to) = (tempfile::tempdir(), tempfile::tempdir());
    let (from, to) = (from.expect("a folder"), to.expect("a folder"));
    let mut draft = with_mtp();
    let seen = "model.visual.patch_embed.proj.weight";
    draft.add(seen, Dtype::BF16, &[2, 3], (0..12).collect());
    draft.config["mtp_num_hidden_layers"] = 1.into();
    draft.write(from.path());
    quantize(from.path(), to.path(), u64::MAX, &|_, _| {}).expect("quantises");
    let opened = Checkpoint::open(to.path()).expect("opens");
    assert_eq!(opened.notes(), [""; 0]);
    assert_eq!(opened.vision().len(), 1);
    for weight in opened.weights() {
        let module = &weight.parameter.module;
        let codes = module.starts_with("layers.")
            && weight.parameter.shape.len() > 1
            && !["conv1d", "gate", "shared_expert_gate"]
                .contains(&module.rsplit('.').next().unwrap_or_default());
        assert_eq!(weight.stored == Stored::Int8, codes, "{module}");
    }
    let bytes = |c: &Checkpoint, name: &str| {
        let found = c.files().find(name);
        c.files().bytes(found.expect(name)).to_vec()
    };
    let original = Checkpoint::open(from.path()).expect("opens");
    let copied = draft.tensors.iter().map(|t| t.name.as_str());
    for name in copied.filter(|n| n.starts_with("mtp.") || n.starts_with("lm_head") || *n == seen) {
        assert_eq!(bytes(&opened, name), bytes(&original, name), "{name}");
    }
}
