//! A synthetic model runs like a trained one: bytes that no backend and no chunk changes, hidden states
//! and logits of order one to the last position, routes to every expert.

use layerlet_core::backend::Backend;
use layerlet_core::reference::Reference;
use layerlet_cpu::Cpu;
use layerlet_engine::checkpoint::Checkpoint;
use layerlet_engine::synth::{Preset, synthesize};
use layerlet_engine::{Model, Options, trace};
use layerlet_tests::oracle::{Tensor, Trace};

const TOKENS: usize = 400;

fn ids(vocab: u32) -> Vec<u32> {
    // The multiplier shares no factor with the vocabulary: every id comes before one comes twice.
    (0..TOKENS as u32).map(|i| i * 197 % vocab).collect()
}

fn run(checkpoint: &Checkpoint, backend: &dyn Backend, chunks: &[usize]) -> Vec<u8> {
    let options = Options::for_one_sequence(TOKENS);
    let mut model = Model::load(checkpoint, backend, &options, |_, _| ()).unwrap();
    let ids = ids(checkpoint.config.model.vocab as u32);
    trace(&mut model, &ids, chunks).unwrap()
}

fn root_mean_square(row: &[f32]) -> f32 {
    (row.iter().map(|v| v * v).sum::<f32>() / row.len() as f32).sqrt()
}

fn assert_order_one(name: &str, tensor: &Tensor) {
    for t in 0..tensor.rows() {
        let size = root_mean_square(tensor.row(t));
        // A comparison that NaN fails.
        assert!((0.3..8.0).contains(&size), "{name}, token {t}: {size}");
    }
}

#[test]
fn tiny_runs_as_a_model_does() {
    let dir = tempfile::tempdir().unwrap();
    synthesize(Preset::Tiny, 7, dir.path(), u64::MAX, &|_, _| {}).unwrap();
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    let expected = run(&checkpoint, &Reference, &[TOKENS]);
    let found = run(&checkpoint, &Cpu::new(), &[1, 2, 64, 101, 200, 32]);
    assert!(found == expected, "the CPU backend gives other bytes");

    let trace = Trace::parse(&expected);
    let model = &checkpoint.config.model;
    let finite = |name: &str| trace.get(name).values.iter().all(|v| v.is_finite());
    let infinite: Vec<&str> = trace.names().filter(|name| !finite(name)).collect();
    assert_eq!(infinite, [""; 0]);
    assert_order_one("logits", trace.get("logits"));
    for layer in 0..model.layers.len() {
        let out = format!("layer{layer}.out");
        assert_order_one(&out, trace.get(&out));
        let routes = &trace.get(&format!("layer{layer}.router_ids")).values;
        let mut seen = vec![0; model.moe.experts];
        routes.iter().for_each(|id| seen[*id as usize] += 1);
        let even = TOKENS * model.moe.top_k / model.moe.experts;
        let spread = seen.iter().all(|n| (even / 8..even * 4).contains(n));
        assert!(spread, "layer {layer}: {seen:?}, {even} each would be even");
    }
}
