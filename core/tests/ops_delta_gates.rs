//! Gates of the delta rule. Case 15 of the field's faults: `inf * 0` in the decay, an overflowing softplus.

mod common;

use common::{Bench, Random, assert_close, assert_refused, b, bs};
use layerlet_core::numerics::bf16;
use layerlet_core::ops::{DeltaGates, delta_gates};
use proptest::prelude::*;

/// Every kind of magnitude that a checkpoint or an activation could hold.
fn extremes() -> Vec<f32> {
    let magnitudes = [
        0.0,
        1e-45,
        1e-38,
        1e-10,
        0.1,
        1.0,
        5.0,
        19.9,
        20.0,
        20.1,
        87.0,
        88.7,
        88.8,
        89.0,
        100.0,
        104.0,
        1e3,
        1e10,
        3e38,
        f32::MAX,
    ];
    magnitudes.iter().flat_map(|&m| [m, -m]).collect()
}

/// In f64, where none of these overflows into a NaN.
fn exact_decay(a: f64, a_log: f64, dt_bias: f64) -> f64 {
    let x = a + dt_bias;
    let softplus = if x > 20.0 { x } else { x.exp().ln_1p() };
    let rate = a_log.exp().min(f64::MAX) * softplus;
    (-rate).exp()
}

/// Case 15: the whole grid stays in [0, 1], monotone in `a`, and near the exact value.
#[test]
fn extremes_stay_finite() {
    let zero = b(0.0);
    for &a_log in &extremes() {
        for &dt_bias in &extremes() {
            let mut previous = 1.0;
            let mut rising: Vec<bf16> = extremes()
                .iter()
                .map(|&a| b(a))
                .filter(|a| a.is_finite())
                .collect();
            rising.sort_by(|a, b| a.partial_cmp(b).expect("finite"));
            for a in rising {
                let (decay, _) = delta_gates(a, zero, a_log, dt_bias);
                let context = format!("a {a} a_log {a_log} dt_bias {dt_bias}");
                assert!((0.0..=1.0).contains(&decay), "{context}: {decay}");
                assert!(decay <= previous, "{context}: {decay} above {previous}");
                previous = decay;
            }
        }
    }
    for x in extremes() {
        let beta = delta_gates(zero, b(x), 0.0, 0.0).1;
        assert!((0.0..=1.0).contains(&beta), "sigmoid({x}) = {beta}");
    }
}

#[test]
fn by_hand() {
    let check = |a: f32, beta: f32, a_log: f32, dt_bias: f32, expect: (f32, f32)| {
        let found = delta_gates(b(a), b(beta), a_log, dt_bias);
        assert_eq!(found, expect, "{a} {beta} {a_log} {dt_bias}");
    };
    // The field's fault: exp(100) is infinite, softplus(-1000) is 0. Nothing decays.
    check(-1000.0, 0.0, 100.0, 0.0, (1.0, 0.5));
    check(1000.0, 200.0, 100.0, 0.0, (0.0, 1.0));
    // a alone is out of bf16's exponent range for exp, the sum with its bias is not.
    check(-90.0, -200.0, 0.0, 90.0, (0.5, 0.0));
    check(0.0, 0.0, f32::NEG_INFINITY, 0.0, (1.0, 0.5));
}

#[test]
fn nan_stays_visible() {
    let (zero, nan) = (b(0.0), b(f32::NAN));
    assert!(delta_gates(nan, zero, 0.0, 0.0).0.is_nan());
    assert!(delta_gates(zero, nan, 0.0, 0.0).1.is_nan());
    assert!(delta_gates(zero, zero, f32::NAN, 0.0).0.is_nan());
    assert!(delta_gates(zero, zero, 0.0, f32::NAN).0.is_nan());
}

/// Different parameters for every head: a stride of 0 would show.
#[test]
fn every_head_has_its_own_parameters() {
    let (rows, heads) = (3, 5);
    let random = &mut Random::new(11);
    let (a, beta) = (
        random.bf16s(rows * heads, 3.0),
        random.bf16s(rows * heads, 3.0),
    );
    let (a_log, dt_bias) = (random.f32s(heads, 2.0), random.f32s(heads, 2.0));
    let mut bench = Bench::default();
    let op = DeltaGates {
        a: bench.input("a", &[rows, heads], a.clone()),
        b: bench.input("b", &[rows, heads], beta.clone()),
        a_log: bench.input("a_log", &[heads], a_log.clone()),
        dt_bias: bench.input("dt_bias", &[heads], dt_bias.clone()),
        decay: bench.output("decay", &[rows, heads]),
        beta: bench.output("beta", &[rows, heads]),
    };
    bench.run(op.clone()).expect("good shapes");
    for i in 0..rows * heads {
        let expect = delta_gates(a[i], beta[i], a_log[i % heads], dt_bias[i % heads]);
        assert_eq!(
            (bench.get(op.decay)[i], bench.get(op.beta)[i]),
            expect,
            "element {i}"
        );
    }
}

#[test]
fn refuses_shapes_by_name() {
    let mut bench = Bench::default();
    let op = DeltaGates {
        a: bench.input("a", &[2, 3], bs(&[0.0; 6])),
        b: bench.input("b", &[2, 3], bs(&[0.0; 6])),
        a_log: bench.input("a_log", &[3], vec![0.0; 3]),
        dt_bias: bench.input("dt_bias", &[2], vec![0.0; 2]),
        decay: bench.output("decay", &[2, 3]),
        beta: bench.output("beta", &[3, 2]),
    };
    assert_refused(bench.check(op.clone()), &["delta_gates", "dt_bias", "[3]"]);
    let dt_bias = bench.input("good bias", &[3], vec![0.0; 3]);
    assert_refused(
        bench.check(DeltaGates { dt_bias, ..op }),
        &["beta", "[2, 3]"],
    );
}

proptest! {
    #[test]
    fn stays_near_the_formula(a in -30f32..30.0, beta in -30f32..30.0, a_log in -5f32..3.0, dt_bias in -5f32..5.0) {
        let (a, beta) = (b(a), b(beta));
        let (decay, strength) = delta_gates(a, beta, a_log, dt_bias);
        let exact = exact_decay(f64::from(a.to_f32()), f64::from(a_log), f64::from(dt_bias));
        assert_close(decay, exact, 1e-5, "decay");
        let exact = 1.0 / (1.0 + (-f64::from(beta.to_f32())).exp());
        assert_close(strength, exact, 1e-6, "beta");
    }
}
