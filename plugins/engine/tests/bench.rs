//! What a benchmark counts, on the tiny model; never a time.

mod common;

use common::tiny;
use layerlet_core::backend::Backend;
use layerlet_core::buffer::Role;
use layerlet_core::plan::{Head, Plan, StepShape};
use layerlet_core::reference::Reference;
use layerlet_core::work::Work;
use layerlet_engine::bench::{Report, Settings, measure};
use layerlet_engine::checkpoint::Checkpoint;
use layerlet_engine::{Model, Options};

fn settings() -> Settings {
    Settings {
        prompt: 12,
        chunk: 8,
        generate: 3,
        context: 5,
        batches: vec![1, 2],
        contexts: Vec::new(),
        repeats: 2,
        seed: 7,
        read_buffer: Some(1 << 16),
    }
}

fn report(settings: &Settings) -> Report {
    run(settings).1
}

fn run(settings: &Settings) -> (Model, Report) {
    let checkpoint = Checkpoint::open(&tiny("quark")).expect("opens");
    let options = Options {
        capacity: settings.capacity(),
        fused: false,
    };
    let mut model = Model::load(&checkpoint, &Reference, &options, |_, _| {}).expect("loads");
    let report = measure(&mut model, Reference.identity(), 1, settings, |_| {});
    (model, report.expect("measures"))
}

/// The tiny model's sizes: 3 delta-net layers, 1 of attention, in all of them 2 of 8 experts.
mod sizes {
    pub const HIDDEN: u64 = 64;
    pub const VOCAB: u64 = 512;
    pub const LAYERS: u64 = 4;
    pub const DELTA_LAYERS: u64 = 3;
    pub const KEYS: u64 = 2 * 16;
    pub const VALUES: u64 = 4 * 16;
    pub const VALUE_HEADS: u64 = 4;
    pub const HEADS: u64 = 4 * 32;
    pub const KV_HEADS: u64 = 2 * 32;
    pub const EXPERTS: u64 = 8;
    pub const TOP_K: u64 = 2;
    pub const INNER: u64 = 32;
}

/// Multiply-adds of one decoded row, layer by layer: `[int8, bf16]`.
fn multiply_adds_of_a_row() -> [u64; 2] {
    use sizes::*;
    let channels = 2 * KEYS + VALUES;
    let delta = HIDDEN * (channels + VALUES + 2 * VALUE_HEADS) + VALUES * HIDDEN;
    let attention = HIDDEN * (2 * HEADS + 2 * KV_HEADS) + HEADS * HIDDEN;
    let expert = HIDDEN * 2 * INNER + INNER * HIDDEN;
    // The shared expert is as wide as a routed one.
    let moe = (TOP_K + 1) * expert;
    // Router, the shared expert's gate and the head stay bf16.
    let gates = HIDDEN * (EXPERTS + 1);
    [
        DELTA_LAYERS * delta + attention + LAYERS * moe,
        LAYERS * gates + VOCAB * HIDDEN,
    ]
}

fn scaled(work: [u64; 2], rows: u64) -> [u64; 2] {
    work.map(|n| n * rows)
}

fn multiply_adds(work: &Work) -> [u64; 2] {
    [work.int8_multiply_adds, work.bf16_multiply_adds]
}

#[test]
fn multiply_adds_are_those_of_the_rows() {
    let report = report(&settings());
    let row = multiply_adds_of_a_row();
    for decode in &report.decode {
        let work = decode.movement.as_ref().expect("counted").work;
        let rows = (decode.batch * settings().generate) as u64;
        assert_eq!(multiply_adds(&work), scaled(row, rows), "{}", decode.batch);
    }
    // Chunks of 8 and 4 rows, of each of which one row meets the head.
    let head = sizes::VOCAB * sizes::HIDDEN;
    let [int8, bf16] = scaled(row, 12);
    let prefill = report.prefill.movement.expect("counted").work;
    assert_eq!(multiply_adds(&prefill), [int8, bf16 - 10 * head]);
}

/// Weights that a decoded token reads, each once: everything but the embedding's other rows and the experts
/// that its routes leave out.
fn weights_of_a_token() -> u64 {
    use sizes::*;
    // s8 with one f32 scale a row; bf16; f32.
    let int8 = |n: u64, k: u64| n * k + 4 * n;
    let channels = 2 * KEYS + VALUES;
    let delta = int8(channels, HIDDEN)
        + int8(VALUES, HIDDEN)
        + 2 * int8(VALUE_HEADS, HIDDEN)
        + int8(HIDDEN, VALUES)
        + 4 * (channels * 4 + 2 * VALUE_HEADS + 16);
    let rope_rows = 2 * 2 * 8;
    let attention = int8(2 * HEADS, HIDDEN)
        + 2 * int8(KV_HEADS, HIDDEN)
        + int8(HIDDEN, HEADS)
        + 4 * 2 * 32
        + rope_rows;
    let expert = int8(2 * INNER, HIDDEN) + int8(HIDDEN, INNER);
    let moe = (TOP_K + 1) * expert + 2 * HIDDEN * (EXPERTS + 1);
    let norms = 4 * HIDDEN * (2 * LAYERS + 1);
    DELTA_LAYERS * delta + attention + LAYERS * moe + norms + 2 * HIDDEN * (1 + VOCAB)
}

/// State that a decoded token reads and writes after `context` tokens.
fn state_of_a_token(context: u64) -> u64 {
    use sizes::*;
    let convolution = 3 * (2 * KEYS + VALUES) * 2;
    let recurrent = VALUE_HEADS * 16 * 16 * 4;
    let position = 2 * KV_HEADS * 2;
    // The new position is written, then seen with the others.
    DELTA_LAYERS * 2 * (convolution + recurrent) + (1 + context + 1) * position
}

/// Step data and activations of a step of one row, at every launch that reads or writes them.
fn activations_of_a_row(plan: &Plan) -> u64 {
    let operands = plan.launches.iter().flat_map(|l| l.operands());
    let decls = operands.map(|o| plan.buffers.get(o.buffer).expect("declared"));
    decls
        .filter(|d| !matches!(d.role, Role::Weight | Role::State))
        .map(|d| d.bytes() as u64)
        .sum()
}

#[test]
fn bytes_of_a_token_are_the_sum_of_its_parts() {
    let settings = settings();
    let (mut model, report) = run(&settings);
    let shape = StepShape {
        tokens: 1,
        sequences: 1,
        outputs: 1,
        pages_per_sequence: 1,
        head: Head::Argmax,
        verify: false,
        trace: false,
    };
    let row = activations_of_a_row(model.plan(&shape).expect("plans"));
    let token = |context| weights_of_a_token() + state_of_a_token(context) + row;
    let expect: u64 = (5..8).map(token).sum();
    let movement = report.decode[0].movement.as_ref().expect("counted");
    assert_eq!(movement.work.bytes, expect);
    assert_eq!(movement.bytes_per_token, expect as f64 / 3.0);
    let read = report
        .read_bandwidth
        .expect("measured")
        .bytes_per_second
        .max;
    let share = movement.bytes_per_second / read;
    assert_eq!(movement.share_of_read_bandwidth, share);
}

/// Two sequences share the weights of a step: a token of both moves less than a token of one.
#[test]
fn a_batch_shares_weights() {
    let report = report(&settings());
    let [one, two] = &report.decode[..] else {
        panic!("{} batches", report.decode.len())
    };
    let bytes = |d: &layerlet_engine::bench::Decode| d.movement.as_ref().unwrap().bytes_per_token;
    assert!(bytes(two) < bytes(one), "{} and {}", bytes(two), bytes(one));
    assert!(2.0 * bytes(two) > bytes(one));
}

#[test]
fn operations_add_up_to_the_run() {
    let report = report(&settings());
    let prefill = report.prefill.movement.expect("counted").work;
    let sum: Work = report.prefill_operations.iter().map(|o| o.work).sum();
    assert_eq!(sum, prefill);
    for operations in [&report.prefill_operations, &report.decode_operations] {
        let shares: f64 = operations.iter().map(|o| o.share).sum();
        assert!((shares - 1.0).abs() < 1e-9, "{shares}");
        let falling = |w: &[_]| {
            let [a, b]: &[layerlet_engine::bench::OperationTime; 2] = w.try_into().unwrap();
            a.seconds >= b.seconds
        };
        assert!(operations.windows(2).all(falling));
    }
    let launches = |name: &str| {
        let named = report.decode_operations.iter().find(|o| o.name == name);
        named.map_or(0, |o| o.launches)
    };
    // A layer has both projections of its experts; one layer of four has attention.
    assert_eq!(launches("grouped_linear_w8a8"), 8);
    assert_eq!(launches("paged_attention"), 1);
    assert_eq!(launches("gated_delta_rule"), 3);
}

#[test]
fn contexts_are_measured_after_the_batches() {
    let settings = Settings {
        contexts: vec![9, 70],
        batches: vec![1],
        ..settings()
    };
    let report = report(&settings);
    let measured: Vec<_> = report
        .contexts
        .iter()
        .map(|d| (d.batch, d.context))
        .collect();
    assert_eq!(measured, [(1, 9), (1, 70)]);
    let bytes = |d: &layerlet_engine::bench::Decode| d.movement.as_ref().unwrap().work.bytes;
    // Three steps, each of which sees 61 positions more: keys and values of two heads of 32.
    let more = 3 * 61 * 2 * 2 * 32 * 2;
    assert_eq!(
        bytes(&report.contexts[1]) - bytes(&report.contexts[0]),
        more
    );
    assert_eq!(
        report
            .read_bandwidth
            .unwrap()
            .bytes_per_second
            .samples
            .len(),
        2 * 2 + 2 * 2
    );
}

#[test]
fn a_brief_run_counts_nothing() {
    let settings = Settings {
        read_buffer: None,
        context: 0,
        ..settings()
    };
    let report = report(&settings);
    assert!(report.read_bandwidth.is_none() && report.prefill.movement.is_none());
    assert!(report.prefill_operations.is_empty() && report.decode_operations.is_empty());
    assert_eq!(report.decode[1].tokens_per_second.samples.len(), 2);
    let summary = &report.prefill.time_to_first_token_seconds;
    assert!(summary.min <= summary.median && summary.median <= summary.max);
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let refused = |settings: Settings, fragment: &str| {
        let error = settings.validate().expect_err(fragment).to_string();
        assert!(error.contains(fragment), "no {fragment:?} in {error}");
    };
    refused(
        Settings {
            prompt: 0,
            ..settings()
        },
        "prompt is 0, expected at least 1",
    );
    refused(
        Settings {
            batches: vec![],
            ..settings()
        },
        "batches is 0",
    );
    refused(
        Settings {
            batches: vec![1, 0],
            ..settings()
        },
        "a batch is 0",
    );
    refused(
        Settings {
            contexts: vec![9, 9],
            ..settings()
        },
        "ascending numbers above 5",
    );
    refused(
        Settings {
            contexts: vec![5],
            ..settings()
        },
        "further contexts is [5]",
    );
    assert!(settings().validate().is_ok());
}
