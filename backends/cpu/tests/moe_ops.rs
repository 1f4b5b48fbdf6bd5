//! The operations of router, experts and head against their definitions.

mod common;

use common::Case;
use common::random::Random;
use layerlet_core::NONE;
use layerlet_core::numerics::bf16;
use layerlet_core::ops::*;
use proptest::prelude::*;

fn width() -> impl Strategy<Value = usize> {
    prop_oneof![1..=9usize, 28..=36usize, 62..=66usize, Just(130)]
}

fn rows() -> impl Strategy<Value = usize> {
    prop_oneof![1..=6usize, 14..=19usize, Just(40)]
}

/// Logits with ties, NaN and infinities among few values.
fn tied(r: &mut Random, n: usize) -> Vec<bf16> {
    let few = [
        0.0,
        -0.0,
        1.0,
        1.5,
        -2.0,
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
    ];
    let (ties, wild) = (r.chance(2), r.chance(4));
    let pick = |r: &mut Random| few[r.below(if wild { 8 } else { 5 })];
    (0..n)
        .map(|_| bf16::from_f32(if ties { pick(r) } else { r.float() }))
        .collect()
}

/// Ids of experts: spread, hot, or left out.
fn routes(r: &mut Random, pairs: usize, experts: usize) -> Vec<u32> {
    let hot = r.below(experts) as u32;
    let kind = r.below(4);
    (0..pairs)
        .map(|_| match kind {
            0 => hot,
            1 if r.chance(2) => NONE,
            _ => r.below(experts) as u32,
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn router_top_k(t in rows(), experts in width(), k in 1..9usize, seed in any::<u32>()) {
        let (mut case, mut r) = (Case::new(), Random::new(seed));
        let k = k.min(experts);
        let logits = tied(&mut r, t * experts);
        let logits = case.step(&[t, experts], &logits);
        let sequence: Vec<u32> = (0..t).map(|_| if r.chance(5) { NONE } else { 0 }).collect();
        let row_seq = case.step(&[t], &sequence);
        let (ids, weights) = (case.scratch(&[t, k]), case.scratch(&[t, k]));
        case.launch(RouterTopK { logits, row_seq, ids, weights });
        case.check();
    }

    #[test]
    fn argmax(rows in rows(), vocab in width(), seed in any::<u32>()) {
        let (mut case, mut r) = (Case::new(), Random::new(seed));
        let logits = tied(&mut r, rows * vocab);
        let logits = case.step(&[rows, vocab], &logits);
        let live: Vec<u32> = (0..rows).map(|i| if r.chance(5) { NONE } else { i as u32 }).collect();
        let out_rows = case.step(&[rows], &live);
        let tokens = case.scratch(&[rows]);
        case.launch(Argmax { logits, out_rows, tokens });
        case.check();
    }

    #[test]
    fn lm_head(t in rows(), rows in rows(), vocab in width(), h in width(), seed in any::<u32>()) {
        let (mut case, mut r) = (Case::new(), Random::new(seed));
        let weight = case.weight(&[vocab, h], &r.bf16s(vocab * h));
        let x = case.step(&[t, h], &r.bf16s(t * h));
        let out: Vec<u32> = (0..rows).map(|_| if r.chance(5) { NONE } else { r.below(t) as u32 }).collect();
        let out_rows = case.step(&[rows], &out);
        let logits = case.scratch(&[rows, vocab]);
        case.launch(LmHead { x, out_rows, weight, logits });
        case.check();
    }

    #[test]
    fn experts(
        t in rows(), k in 1..4usize, e in 1..6usize, h in width(), i in width(), seed in any::<u32>(),
    ) {
        let (mut case, mut r) = (Case::new(), Random::new(seed));
        let bf16_weight = case.weight(&[e, i, h], &r.bf16s(e * i * h));
        let s8_weight = case.weight(&[e, i, h], &r.codes(e * i * h));
        let down = case.weight(&[e, h, i], &r.codes(e * h * i));
        let weight_scale = case.weight(&[e, i], &r.scales(e * i));
        let down_scale = case.weight(&[e, h], &r.scales(e * h));
        let x = case.step(&[t, h], &r.bf16s(t * h));
        let chosen = routes(&mut r, t * k, e);
        let ids = case.step(&[t, k], &chosen);
        let token_weights = case.step(&[t, k], &r.f32s(t * k));
        let offsets = case.scratch(&[e + 1]);
        let (slot_of_row, row_of_slot) = (case.scratch(&[t * k]), case.scratch(&[t * k]));
        case.launch(ExpertPrologue { ids, offsets, slot_of_row, row_of_slot });
        let out = case.scratch(&[t * k, i]);
        let source = RowSource::Token { k };
        case.launch(GroupedLinearBf16 { x, weight: bf16_weight, offsets, slot_of_row, out, source });
        let (codes, scale) = (case.scratch(&[t, h]), case.scratch(&[t]));
        case.launch(QuantizeRows { x, codes, scale });
        let out = case.scratch(&[t * k, i]);
        case.launch(GroupedLinearW8A8 {
            codes, scale, weight: s8_weight, weight_scale, offsets, slot_of_row, out, source,
        });
        let (codes, scale) = (case.scratch(&[t * k, i]), case.scratch(&[t * k]));
        case.launch(QuantizeRows { x: out, codes, scale });
        let y = case.scratch(&[t * k, h]);
        case.launch(GroupedLinearW8A8 {
            codes, scale, weight: down, weight_scale: down_scale, offsets, slot_of_row, out: y,
            source: RowSource::Row,
        });
        let out = case.scratch(&[t, h]);
        case.launch(WeightedGather { y, row_of_slot, weights: token_weights, out });
        case.check();
    }

    #[test]
    fn experts_of_one_rank(
        t in rows(), k in 1..4usize, e in 1..9usize, h in width(), n in width(), seed in any::<u32>(),
    ) {
        let (mut case, mut r) = (Case::new(), Random::new(seed));
        let own = 1 + r.below(e);
        let first = r.below(e - own + 1);
        let weight = case.weight(&[own, n, h], &r.bf16s(own * n * h));
        let x = case.step(&[t, h], &r.bf16s(t * h));
        let chosen = routes(&mut r, t * k, e);
        let ids = case.step(&[t, k], &chosen);
        let offsets = case.scratch(&[e + 1]);
        let (slot_of_row, row_of_slot) = (case.scratch(&[t * k]), case.scratch(&[t * k]));
        case.launch(ExpertPrologue { ids, offsets, slot_of_row, row_of_slot });
        let (local_offsets, local_slot_of_row) = (case.scratch(&[own + 1]), case.scratch(&[t * k]));
        case.launch(LocalExperts { offsets, slot_of_row, local_offsets, local_slot_of_row, first });
        let y = case.scratch(&[t * k, n]);
        case.launch(GroupedLinearBf16 {
            x, weight, offsets: local_offsets, slot_of_row: local_slot_of_row, out: y,
            source: RowSource::Token { k },
        });
        let out = case.scratch(&[t * k, n]);
        case.launch(ExchangeSlotRows { x: y, offsets: local_offsets, out, ranks: 1 });
        case.check();
    }

    #[test]
    fn silu_mul_and_shared_expert(t in rows(), h in width(), seed in any::<u32>()) {
        let (mut case, mut r) = (Case::new(), Random::new(seed));
        let gate_up = case.step(&[t, 2 * h], &r.bf16s(2 * t * h));
        let routed = case.step(&[t, h], &r.bf16s(t * h));
        let gate = case.step(&[t, 1], &r.bf16s(t));
        let shared = case.scratch(&[t, h]);
        case.launch(SiluMul { gate_up, out: shared });
        let out = case.scratch(&[t, h]);
        case.launch(SharedExpert { shared, gate, routed, out });
        case.check();
    }
}

#[test]
fn routes_that_lead_nowhere_are_refused_as_the_definition_does() {
    let mut case = Case::new();
    let ids = case.step(&[1, 2], &[0u32, 5]);
    let (offsets, slot_of_row, row_of_slot) =
        (case.scratch(&[3]), case.scratch(&[2]), case.scratch(&[2]));
    case.launch(ExpertPrologue {
        ids,
        offsets,
        slot_of_row,
        row_of_slot,
    });
    assert!(case.refusal().contains("an expert id is 5"));

    let mut case = Case::new();
    let weight = case.weight(&[3, 2], &Random::new(1).bf16s(6));
    let x = case.step(&[2, 2], &Random::new(2).bf16s(4));
    let out_rows = case.step(&[1], &[2u32]);
    let logits = case.scratch(&[1, 3]);
    case.launch(LmHead {
        x,
        out_rows,
        weight,
        logits,
    });
    assert!(case.refusal().contains("a row is 2"));
}
