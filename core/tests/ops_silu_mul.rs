//! `silu(gate) * up`.

mod common;

use common::{Bench, Random, assert_refused, assert_same_bits, b, bs};
use layerlet_core::numerics::{bf16, exp, round_bf16};
use layerlet_core::ops::SiluMul;

fn silu_mul(gate_up: &[bf16], width: usize) -> Vec<bf16> {
    let rows = gate_up.len() / (2 * width);
    let mut bench = Bench::default();
    let op = SiluMul {
        gate_up: bench.input("gate_up", &[rows, 2 * width], gate_up.to_vec()),
        out: bench.output("out", &[rows, width]),
    };
    bench.run(op.clone()).expect("good shapes");
    bench.get(op.out).to_vec()
}

#[test]
fn extremes() {
    let check = |gate: f32, up: f32, expect: f32| {
        let out = silu_mul(&bs(&[gate, up]), 1);
        assert_same_bits(&out, &bs(&[expect]), &format!("{gate} {up}"));
    };
    check(0.0, 3.0, 0.0);
    check(-0.0, 3.0, -0.0);
    check(100.0, 3.0, 300.0);
    check(-100.0, 3.0, -0.0);
    check(-3.0e38, -1.0, 0.0);
    check(3.0e38, 10.0, f32::INFINITY);
    check(f32::INFINITY, -1.0, f32::NEG_INFINITY);
    check(f32::NEG_INFINITY, 1.0, f32::NAN);
    check(f32::NAN, 1.0, f32::NAN);
    check(1.0, f32::NAN, f32::NAN);
}

/// Every gate, against the formula and against f64; the forms that others use must differ somewhere.
#[test]
fn every_gate_rounds_twice() {
    let gates: Vec<bf16> = (0..=u16::MAX)
        .map(bf16::from_bits)
        .filter(|g| g.is_finite())
        .collect();
    let ups = Random::new(1).bf16s(gates.len(), 4.0);
    let width = gates.len();
    let out = silu_mul(&[gates.clone(), ups.clone()].concat(), width);
    let (mut once, mut swapped) = (0, 0);
    for ((gate, up), out) in gates.iter().zip(&ups).zip(out) {
        let (g, u) = (gate.to_f32(), up.to_f32());
        let silu = g / (1.0 + exp(-g));
        let expect = round_bf16(round_bf16(silu).to_f32() * u);
        assert_eq!(out.to_bits(), expect.to_bits(), "{g} {u}");
        let exact = f64::from(g) / (1.0 + f64::from(-g).exp()) * f64::from(u);
        let overflows = exact.abs() > 3.38e38;
        let error = (out.to_f64() - exact).abs();
        // Below -88.72 exp(-g) overflows and silu is 0: up to 2.7e-37 away, NUMERICS.md says.
        let tail = 2.7e-37 * f64::from(u.abs()).max(1.0);
        assert!(
            overflows || error <= exact.abs() / 120.0 + tail,
            "{g} {u}: {out} is not {exact}"
        );
        once += usize::from(round_bf16(silu * u).to_bits() != out.to_bits());
        let other = round_bf16(round_bf16(u / (1.0 + exp(-u))).to_f32() * g);
        swapped += usize::from(other.to_bits() != out.to_bits());
    }
    assert!(once > 1000 && swapped > 1000, "{once} {swapped}");
}

/// Gate and up lie side by side in each row; case 11 beside it.
#[test]
fn halves_belong_to_their_rows() {
    let width = 19;
    let gate_up = Random::new(2).bf16s(130 * 2 * width, 3.0);
    let all = silu_mul(&gate_up, width);
    for rows in 1..=130 {
        let some = silu_mul(&gate_up[..rows * 2 * width], width);
        assert_same_bits(&some, &all[..rows * width], "rows");
    }
    let out = silu_mul(&bs(&[100.0, 200.0, 2.0, 3.0, 300.0, -0.0, 5.0, 7.0]), 2);
    assert_eq!(out, [b(200.0), b(600.0), b(1500.0), b(-0.0)]);
}

#[test]
fn shapes_are_refused() {
    let check = |gate_up: [usize; 2], out: [usize; 2], fragments: &[&str]| {
        let mut bench = Bench::default();
        let op = SiluMul {
            gate_up: bench.output("gate_up", &gate_up),
            out: bench.output("out", &out),
        };
        assert_refused(bench.check(op), fragments);
    };
    check([3, 0], [3, 0], &["silu_mul", "buffer out", "I not 0"]);
    check([3, 7], [3, 3], &["silu_mul", "buffer gate_up", "[3, 6]"]);
    check([4, 6], [3, 3], &["silu_mul", "buffer gate_up", "[3, 6]"]);
}
