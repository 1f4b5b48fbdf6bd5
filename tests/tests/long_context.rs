//! 8,192 tokens, again and again: one trace. Elsewhere a race at this length was skipped as "random
//! numeric error".
//!
//! Runs differ in threads, chunks and fusion. Quick by default (3 runs); `LAYERLET_SLOW=1` makes 20.

use layerlet_core::backend::Backend;
use layerlet_cpu::Cpu;
use layerlet_engine::checkpoint::Checkpoint;
use layerlet_engine::{Model, Options, trace};
use layerlet_tests::oracle::{Trace, tiny};
use std::path::Path;

const TOKENS: usize = 8192;

/// The tiny int8 model with room for more positions than its config grants.
fn longer(dir: &Path) -> Checkpoint {
    let text = std::fs::read_to_string(tiny().join("quark/config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
    config["text_config"]["max_position_embeddings"] = TOKENS.into();
    std::fs::write(dir.join("config.json"), config.to_string()).unwrap();
    std::fs::copy(
        tiny().join("quark/model.safetensors"),
        dir.join("model.safetensors"),
    )
    .unwrap();
    Checkpoint::open(dir).unwrap()
}

fn run(checkpoint: &Checkpoint, ids: &[u32], backend: &dyn Backend, chunk: usize) -> Vec<u8> {
    let options = Options {
        fused: !chunk.is_multiple_of(3),
        ..Options::for_one_sequence(TOKENS)
    };
    let mut model = Model::load(checkpoint, backend, &options, |_, _| ()).unwrap();
    let mut chunks = vec![chunk; TOKENS / chunk];
    chunks.extend(Some(TOKENS % chunk).filter(|rest| *rest > 0));
    trace(&mut model, ids, &chunks).unwrap()
}

#[test]
fn every_run_of_8192_tokens_is_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let checkpoint = longer(dir.path());
    let pattern = Trace::read("oracle_bf16.safetensors").ids();
    // No period that a page, a block or a chunk could share.
    let ids: Vec<u32> = (0..TOKENS)
        .map(|i| (pattern[i % 149] + i as u32 / 149) % 512)
        .collect();
    let runs = if std::env::var_os("LAYERLET_SLOW").is_some() {
        20
    } else {
        3
    };
    let expected = run(&checkpoint, &ids, &Cpu::new(), TOKENS);
    let chunks = [1000, 64, 513, TOKENS, 127];
    for n in 1..runs {
        let backend = Cpu::with_threads(1 + n % 4).inline_below(n * 100);
        let chunk = chunks[n % chunks.len()];
        let found = run(&checkpoint, &ids, &backend, chunk);
        assert!(found == expected, "run {n}, chunks of {chunk}: other bytes");
    }
}
