//! RMS norm. Case 14 of the field's faults: a second rounding between scale and weight.

mod common;

use common::{Bench, Random, assert_close, assert_refused, assert_same_bits, b, bs};
use layerlet_core::numerics::{bf16, lane_sum, round_bf16, rsqrt};
use layerlet_core::ops::{AddRmsNorm, RmsNorm, WeightOffset, rms_norm_row};
use proptest::prelude::*;

const EPS: f32 = 1e-6;

fn norm(x: &[bf16], weight: &[f32], offset: WeightOffset) -> Vec<bf16> {
    let mut out = vec![bf16::ZERO; x.len()];
    rms_norm_row(x, weight, EPS, offset, &mut out);
    out
}

#[test]
fn by_hand() {
    let check = |x: &[f32], weight: &[f32], offset, expect: &[f32]| {
        let out = norm(&bs(x), weight, offset);
        assert_same_bits(&out, &bs(expect), &format!("{x:?} {weight:?} {offset:?}"));
    };
    let (zero, one) = (WeightOffset::Zero, WeightOffset::One);
    check(
        &[3.0, -3.0, 3.0, 3.0],
        &[1.0, 2.0, 0.0, -1.0],
        zero,
        &[1.0, -2.0, 0.0, -1.0],
    );
    check(
        &[3.0, -3.0, 3.0, 3.0],
        &[1.0, 2.0, 0.0, -1.0],
        one,
        &[2.0, -3.0, 1.0, 0.0],
    );
    // Zero rows stay zero: eps keeps the root finite.
    check(&[0.0, -0.0], &[5.0, 5.0], zero, &[0.0, -0.0]);
    // The squares of the largest values overflow: rsqrt(inf) is 0. Written down, not wished for.
    check(&[1e30, 1.0], &[1.0, 1.0], zero, &[0.0, 0.0]);
    check(&[f32::NAN, 1.0], &[1.0, 1.0], zero, &[f32::NAN, f32::NAN]);
}

/// Case 14: vectors on which one and two roundings differ, for both kinds of weight; enough of them to
/// tell the order of the products and of the sum as well, which bf16 hides from all but one in some 10^5.
#[test]
fn rounds_once_in_the_written_order() {
    for offset in [WeightOffset::Zero, WeightOffset::One] {
        let random = &mut Random::new(6);
        let [mut twice, mut products, mut ascending] = [0; 3];
        for _ in 0..8192 {
            let (x, weight) = (random.bf16s(128, 2.0), random.f32s(128, 1.0));
            let squares = x.iter().map(|x| x.to_f32() * x.to_f32());
            let r = rsqrt(lane_sum(squares.clone()) / 128.0 + EPS);
            let r_ascending = rsqrt(squares.sum::<f32>() / 128.0 + EPS);
            for ((x, w), y) in x.iter().zip(&weight).zip(norm(&x, &weight, offset)) {
                let (x, factor) = (x.to_f32(), offset.factor(*w));
                let differs = |other: f32| usize::from(round_bf16(other).to_bits() != y.to_bits());
                assert_eq!(differs((x * r) * factor), 0);
                twice += differs(round_bf16(x * r).to_f32() * factor);
                products += differs(x * (r * factor));
                ascending += differs((x * r_ascending) * factor);
            }
        }
        let context = format!("{offset:?}: {twice} {products} {ascending}");
        assert!(
            twice > 100_000 && products > 0 && ascending > 0,
            "{context}"
        );
    }
}

/// Heads with gaps between them, as the q projection has them (q, then gate).
#[test]
fn norms_each_group_and_skips_the_rest() {
    let (rows, groups, stride, width) = (3, 4, 10, 6);
    let random = &mut Random::new(7);
    let x = random.bf16s(rows * groups * stride, 1.0);
    let weight = random.f32s(width, 1.0);
    let run = |x: Vec<bf16>| {
        let mut bench = Bench::default();
        let op = RmsNorm {
            x: bench.input("x", &[rows, groups * stride], x),
            weight: bench.input("weight", &[width], weight.clone()),
            out: bench.output("out", &[rows, groups * width]),
            eps: EPS,
            offset: WeightOffset::One,
            stride,
        };
        bench.run(op.clone()).expect("good shapes");
        bench.get(op.out).to_vec()
    };
    let out = run(x.clone());
    for (x, out) in x.chunks_exact(stride).zip(out.chunks_exact(width)) {
        assert_same_bits(out, &norm(&x[..width], &weight, WeightOffset::One), "group");
    }
    let mut other_gaps = x;
    other_gaps
        .chunks_exact_mut(stride)
        .for_each(|group| group[width..].fill(b(f32::NAN)));
    assert_same_bits(&run(other_gaps), &out, "gaps");
}

/// The norm is of the stored sum; on this data the norm of the unrounded one differs.
#[test]
fn adds_then_norms_what_it_stored() {
    let (rows, width) = (20, 96);
    let random = &mut Random::new(8);
    let (x, delta) = (
        random.bf16s(rows * width, 3.0),
        random.bf16s(rows * width, 0.3),
    );
    let weight = random.f32s(width, 0.5);
    let mut bench = Bench::default();
    let op = AddRmsNorm {
        x: bench.input("x", &[rows, width], x.clone()),
        delta: bench.input("delta", &[rows, width], delta.clone()),
        weight: bench.input("weight", &[width], weight.clone()),
        sum: bench.output("sum", &[rows, width]),
        out: bench.output("out", &[rows, width]),
        eps: EPS,
        offset: WeightOffset::One,
    };
    bench.run(op.clone()).expect("good shapes");
    let exact: Vec<f32> = x
        .iter()
        .zip(&delta)
        .map(|(x, d)| x.to_f32() + d.to_f32())
        .collect();
    assert_same_bits(bench.get(op.sum), &bs(&exact), "sum");
    let mut unrounded_differs = 0;
    for ((sum, exact), out) in bench
        .get(op.sum)
        .chunks_exact(width)
        .zip(exact.chunks_exact(width))
        .zip(bench.get(op.out).chunks_exact(width))
    {
        assert_same_bits(out, &norm(sum, &weight, WeightOffset::One), "norm");
        let r = rsqrt(lane_sum(exact.iter().map(|x| x * x)) / width as f32 + EPS);
        let unrounded = exact
            .iter()
            .zip(&weight)
            .map(|(x, w)| b((x * r) * (1.0 + w)));
        unrounded_differs += unrounded.zip(out).filter(|(u, o)| u != *o).count();
    }
    assert!(unrounded_differs > 0);
}

#[test]
fn refuses_shapes_by_name() {
    let mut bench = Bench::default();
    let op = RmsNorm {
        x: bench.input("x", &[2, 10], bs(&[0.0; 20])),
        weight: bench.input("weight", &[4], vec![0.0; 4]),
        out: bench.output("out", &[2, 8]),
        eps: EPS,
        offset: WeightOffset::One,
        stride: 5,
    };
    bench.check(op.clone()).expect("two groups of 5, 4 used");
    for stride in [0, 3, 4, 7] {
        assert_refused(
            bench.check(RmsNorm {
                stride,
                ..op.clone()
            }),
            &["buffer x", "[2, 10]"],
        );
    }
    assert_refused(
        bench.check(RmsNorm { stride: 10, ..op }),
        &["buffer out", "[2, 4]"],
    );
}

proptest! {
    #[test]
    fn stays_near_the_formula(seed: u64, width in 1usize..300) {
        let random = &mut Random::new(seed);
        let (x, weight) = (random.bf16s(width, 5.0), random.f32s(width, 1.0));
        let mean = x.iter().map(|x| f64::from(x.to_f32()).powi(2)).sum::<f64>() / width as f64;
        let r = 1.0 / (mean + f64::from(EPS)).sqrt();
        for ((y, x), w) in norm(&x, &weight, WeightOffset::One).iter().zip(&x).zip(&weight) {
            let exact = f64::from(x.to_f32()) * r * (1.0 + f64::from(*w));
            assert_close(y.to_f32(), exact, 4e-3, "rms_norm");
        }
    }
}
