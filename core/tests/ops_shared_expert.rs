//! The shared expert behind its gate, plus the routed sum.

mod common;

use common::{Bench, Random, assert_refused, assert_same_bits, bs};
use layerlet_core::numerics::{bf16, exp, round_bf16};
use layerlet_core::ops::SharedExpert;

fn shared_expert(shared: &[bf16], gate: &[bf16], routed: &[bf16]) -> Vec<bf16> {
    let rows = gate.len();
    let width = shared.len() / rows;
    let mut bench = Bench::default();
    let op = SharedExpert {
        shared: bench.input("shared", &[rows, width], shared.to_vec()),
        gate: bench.input("gate", &[rows, 1], gate.to_vec()),
        routed: bench.input("routed", &[rows, width], routed.to_vec()),
        out: bench.output("out", &[rows, width]),
    };
    bench.run(op.clone()).expect("good shapes");
    bench.get(op.out).to_vec()
}

#[test]
fn by_hand() {
    let check = |shared: f32, gate: f32, routed: f32, expect: f32| {
        let out = shared_expert(&bs(&[shared]), &bs(&[gate]), &bs(&[routed]));
        assert_same_bits(&out, &bs(&[expect]), &format!("{shared} {gate} {routed}"));
    };
    check(6.0, 0.0, 1.0, 4.0);
    check(6.0, 100.0, 1.0, 7.0);
    check(6.0, -200.0, 1.0, 1.0);
    check(6.0, f32::NEG_INFINITY, 1.0, 1.0);
    check(f32::INFINITY, f32::NEG_INFINITY, 1.0, f32::NAN);
    check(-6.0, -200.0, -0.0, -0.0);
    check(1.0, f32::NAN, 1.0, f32::NAN);
}

/// Three roundings; leaving one out must show.
#[test]
fn each_step_rounds() {
    let (rows, width) = (130, 17);
    let random = &mut Random::new(3);
    let (shared, routed) = (
        random.bf16s(rows * width, 2.0),
        random.bf16s(rows * width, 2.0),
    );
    let gate = random.bf16s(rows, 4.0);
    let out = shared_expert(&shared, &gate, &routed);
    let mut differs = [0; 3];
    for (i, out) in out.iter().enumerate() {
        let g = gate[i / width].to_f32();
        let g = 1.0 / (1.0 + exp(-g));
        let (s, r) = (shared[i].to_f32(), routed[i].to_f32());
        let b = |x: f32| round_bf16(x).to_f32();
        assert_eq!(out.to_f32(), b(b(b(g) * s) + r), "element {i}");
        differs[0] += usize::from(out.to_f32() != b(b(g * s) + r));
        differs[1] += usize::from(out.to_f32() != b(b(g) * s + r));
        let other_gate = gate[(i / width + 1) % rows].to_f32();
        differs[2] += usize::from(out.to_f32() != b(b(b(1.0 / (1.0 + exp(-other_gate))) * s) + r));
    }
    assert!(differs.iter().all(|&n| n > 100), "{differs:?}");
    for n in 1..=rows {
        let some = shared_expert(&shared[..n * width], &gate[..n], &routed[..n * width]);
        assert_same_bits(&some, &out[..n * width], "case 11");
    }
}

#[test]
fn shapes_are_refused() {
    let check =
        |shared: [usize; 2], gate: [usize; 2], routed: [usize; 2], out, fragments: &[&str]| {
            let mut bench = Bench::default();
            let op = SharedExpert {
                shared: bench.output("shared", &shared),
                gate: bench.output("gate", &gate),
                routed: bench.output("routed", &routed),
                out: bench.output::<bf16>("out", &[3, out]),
            };
            assert_refused(bench.check(op), fragments);
        };
    check(
        [3, 0],
        [3, 1],
        [3, 0],
        0,
        &["shared_expert", "buffer out", "H not 0"],
    );
    check([3, 4], [3, 1], [3, 5], 5, &["buffer shared", "[3, 5]"]);
    check([3, 5], [3, 5], [3, 5], 5, &["buffer gate", "[3, 1]"]);
    check([3, 5], [3, 1], [2, 5], 5, &["buffer routed", "[3, 5]"]);
}
