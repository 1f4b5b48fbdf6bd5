//! RMS norm with a SiLU gate: one rounding, and the written order of the products.

mod common;

use common::{Bench, Random, assert_close, assert_refused, assert_same_bits, bs};
use layerlet_core::numerics::{bf16, lane_sum, round_bf16, rsqrt, silu};
use layerlet_core::ops::{GatedRmsNorm, gated_rms_norm_row};
use proptest::prelude::*;

const EPS: f32 = 1e-6;

fn norm(x: &[bf16], gate: &[bf16], weight: &[f32]) -> Vec<bf16> {
    let mut out = vec![bf16::ZERO; x.len()];
    gated_rms_norm_row(x, gate, weight, EPS, &mut out);
    out
}

#[test]
fn by_hand() {
    let check = |x: &[f32], gate: &[f32], weight: &[f32], expect: &[f32]| {
        let out = norm(&bs(x), &bs(gate), weight);
        assert_same_bits(&out, &bs(expect), &format!("{x:?} {gate:?} {weight:?}"));
    };
    // silu is the identity far to the right and -0 far to the left.
    check(&[2.0, -2.0], &[100.0, 100.0], &[1.0, 3.0], &[100.0, -300.0]);
    check(&[2.0, -2.0], &[-200.0, 0.0], &[1.0, 1.0], &[-0.0, -0.0]);
    check(&[0.0, 0.0], &[1.0, 5.0], &[1.0, 1.0], &[0.0, 0.0]);
    // The weight is plain, not an offset from one.
    check(&[1.0, 1.0], &[100.0, 100.0], &[0.0, 1.0], &[0.0, 100.0]);
}

/// Enough data to tell the written form from a rounding between norm and weight (transformers), from
/// another order of the products and from another order of the sum: bf16 hides a last place of f32
/// from all but one in some 10^5.
#[test]
fn rounds_once_in_the_written_order() {
    let random = &mut Random::new(9);
    let [mut twice, mut products, mut ascending] = [0; 3];
    for _ in 0..8192 {
        let (x, gate) = (random.bf16s(128, 2.0), random.bf16s(128, 4.0));
        let weight = random.f32s(128, 1.0);
        let squares = x.iter().map(|x| x.to_f32() * x.to_f32());
        let r = rsqrt(lane_sum(squares.clone()) / 128.0 + EPS);
        let r_ascending = rsqrt(squares.sum::<f32>() / 128.0 + EPS);
        let out = norm(&x, &gate, &weight);
        for (((x, z), w), y) in x.iter().zip(&gate).zip(&weight).zip(out) {
            let (x, z) = (x.to_f32(), silu(z.to_f32()));
            let differs = |other: f32| usize::from(round_bf16(other).to_bits() != y.to_bits());
            assert_eq!(differs(((x * r) * w) * z), 0);
            twice += differs((round_bf16(x * r).to_f32() * w) * z);
            products += differs((x * r) * (w * z));
            ascending += differs(((x * r_ascending) * w) * z);
        }
    }
    assert!(
        twice > 100_000 && products > 0 && ascending > 0,
        "{twice} {products} {ascending}"
    );
}

#[test]
fn norms_each_head_of_each_row() {
    let (rows, heads, width) = (3, 5, 24);
    let random = &mut Random::new(10);
    let x = random.bf16s(rows * heads * width, 1.0);
    let gate = random.bf16s(x.len(), 3.0);
    let weight = random.f32s(width, 1.0);
    let mut bench = Bench::default();
    let op = GatedRmsNorm {
        x: bench.input("x", &[rows, heads * width], x.clone()),
        gate: bench.input("gate", &[rows, heads * width], gate.clone()),
        weight: bench.input("weight", &[width], weight.clone()),
        out: bench.output("out", &[rows, heads * width]),
        eps: EPS,
    };
    bench.run(op.clone()).expect("good shapes");
    let inputs = x.chunks_exact(width).zip(gate.chunks_exact(width));
    for (out, (x, gate)) in bench.get(op.out).chunks_exact(width).zip(inputs) {
        assert_same_bits(out, &norm(x, gate, &weight), "head");
    }
}

#[test]
fn refuses_shapes_and_parameters_by_name() {
    let mut bench = Bench::default();
    let op = GatedRmsNorm {
        x: bench.input("x", &[2, 8], bs(&[0.0; 16])),
        gate: bench.input("gate", &[2, 8], bs(&[0.0; 16])),
        weight: bench.input("weight", &[4], vec![0.0; 4]),
        out: bench.output("out", &[2, 8]),
        eps: EPS,
    };
    bench.check(op.clone()).expect("two heads");
    let weight = bench.input("odd weight", &[3], vec![0.0; 3]);
    assert_refused(
        bench.check(GatedRmsNorm {
            weight,
            ..op.clone()
        }),
        &["buffer x", "heads * 3"],
    );
    let gate = bench.input("short gate", &[1, 8], bs(&[0.0; 8]));
    assert_refused(
        bench.check(GatedRmsNorm { gate, ..op.clone() }),
        &["short gate", "[2, 8]"],
    );
    for eps in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        let refused = bench.check(GatedRmsNorm { eps, ..op.clone() });
        assert_refused(refused, &["gated_rms_norm", "eps", "positive finite"]);
    }
}

proptest! {
    #[test]
    fn stays_near_the_formula(seed: u64, width in 1usize..200) {
        let random = &mut Random::new(seed);
        let (x, gate) = (random.bf16s(width, 5.0), random.bf16s(width, 6.0));
        let weight = random.f32s(width, 1.0);
        let mean = x.iter().map(|x| f64::from(x.to_f32()).powi(2)).sum::<f64>() / width as f64;
        let r = 1.0 / (mean + f64::from(EPS)).sqrt();
        for (((y, x), z), w) in norm(&x, &gate, &weight).iter().zip(&x).zip(&gate).zip(&weight) {
            let z = f64::from(z.to_f32());
            let exact = f64::from(x.to_f32()) * r * f64::from(*w) * (z / (1.0 + (-z).exp()));
            assert_close(y.to_f32(), exact, 4e-3, "gated_rms_norm");
        }
    }
}
