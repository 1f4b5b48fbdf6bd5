//! Linear layers and the W8A8 epilogue.

mod common;

use common::{Bench, Random, assert_refused, assert_same_bits, b, bs};
use layerlet_core::config::MAX_W8A8_K;
use layerlet_core::numerics::{bf16, round_bf16};
use layerlet_core::ops::{Dequantize, LinearBf16, LinearW8A8, LinearW8A8Partial, dequantize};
use proptest::prelude::*;

fn linear_bf16(x: &[bf16], weight: &[bf16], [m, n, k]: [usize; 3]) -> Vec<bf16> {
    let mut bench = Bench::default();
    let op = LinearBf16 {
        x: bench.input("x", &[m, k], x.to_vec()),
        weight: bench.input("weight", &[n, k], weight.to_vec()),
        out: bench.output("out", &[m, n]),
    };
    bench.run(op.clone()).expect("good shapes");
    bench.get(op.out).to_vec()
}

/// Codes, their scales, weights, their scales.
struct W8A8 {
    codes: Vec<i8>,
    scale: Vec<f32>,
    weight: Vec<i8>,
    weight_scale: Vec<f32>,
}

impl W8A8 {
    fn random(seed: u64, [m, n, k]: [usize; 3]) -> W8A8 {
        let random = &mut Random::new(seed);
        W8A8 {
            codes: random.i8s(m * k),
            scale: random.f32s(m, 0.1),
            weight: random.i8s(n * k),
            weight_scale: random.f32s(n, 0.01),
        }
    }

    fn linear(&self) -> Vec<bf16> {
        let (m, n) = (self.scale.len(), self.weight_scale.len());
        let k = self.weight.len() / n;
        let mut bench = Bench::default();
        let op = LinearW8A8 {
            codes: bench.input("codes", &[m, k], self.codes.clone()),
            scale: bench.input("scale", &[m], self.scale.clone()),
            weight: bench.input("weight", &[n, k], self.weight.clone()),
            weight_scale: bench.input("weight_scale", &[n], self.weight_scale.clone()),
            out: bench.output("out", &[m, n]),
        };
        bench.run(op.clone()).expect("good shapes");
        bench.get(op.out).to_vec()
    }

    /// Sums of the parts of K, added as a collective would, then scaled.
    fn split_linear(&self, ranks: usize) -> Vec<bf16> {
        let (m, n) = (self.scale.len(), self.weight_scale.len());
        let k = self.weight.len() / n;
        let mut sums = vec![0i32; m * n];
        for rank in 0..ranks {
            let columns = rank * k / ranks..(rank + 1) * k / ranks;
            let cut = |rows: &[i8]| -> Vec<i8> {
                rows.chunks_exact(k)
                    .flat_map(|row| row[columns.clone()].to_vec())
                    .collect()
            };
            let mut bench = Bench::default();
            let op = LinearW8A8Partial {
                codes: bench.input("codes", &[m, columns.len()], cut(&self.codes)),
                weight: bench.input("weight", &[n, columns.len()], cut(&self.weight)),
                acc: bench.output("acc", &[m, n]),
            };
            bench.run(op.clone()).expect("good shapes");
            sums.iter_mut()
                .zip(bench.get(op.acc))
                .for_each(|(sum, acc)| *sum += acc);
        }
        let mut bench = Bench::default();
        let op = Dequantize {
            acc: bench.input("acc", &[m, n], sums),
            scale: bench.input("scale", &[m], self.scale.clone()),
            weight_scale: bench.input("weight_scale", &[n], self.weight_scale.clone()),
            out: bench.output("out", &[m, n]),
        };
        bench.run(op.clone()).expect("good shapes");
        bench.get(op.out).to_vec()
    }
}

#[test]
fn w8a8_by_hand() {
    let layer = W8A8 {
        codes: vec![1, 2, 3, -4, 5, -6],
        scale: vec![0.5, 2.0],
        weight: vec![1, 0, 0, 0, 1, 0, 0, 0, 1, 10, 20, -128],
        weight_scale: vec![1.0, 4.0, 0.25, 1.0],
    };
    let expect = [0.5, 4.0, 0.375, -167.0, -8.0, 40.0, -3.0, 1656.0];
    assert_same_bits(&layer.linear(), &bs(&expect), "W8A8");
}

/// Every product has its opposite in another lane, so that what is left is the rounding of the order.
fn cancelling(rows: usize, k: usize, random: &mut Random) -> (Vec<bf16>, Vec<bf16>) {
    let half = random.bf16s(rows * k / 2, 3.0);
    let weight = random.bf16s(k / 2, 3.0);
    let opposite = weight.iter().map(|&w| -w);
    let x = half
        .chunks_exact(k / 2)
        .flat_map(|row| [row, row].concat())
        .collect();
    (x, weight.iter().copied().chain(opposite).collect())
}

/// Written lanes: on this data the sum in ascending order rounds to another bf16.
#[test]
fn bf16_sums_have_the_lane_order() {
    let [m, k] = [40, 202];
    let (x, weight) = cancelling(m, k, &mut Random::new(2));
    let out = linear_bf16(&x, &weight, [m, 1, k]);
    let mut ascending_differs = 0;
    for (x, y) in x.chunks_exact(k).zip(out) {
        let products: Vec<f32> = x
            .iter()
            .zip(&weight)
            .map(|(x, w)| x.to_f32() * w.to_f32())
            .collect();
        let mut lanes = [0f32; 32];
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum = products
                .iter()
                .skip(lane)
                .step_by(32)
                .fold(0.0, |sum, p| sum + p);
        }
        for stride in [16, 8, 4, 2, 1] {
            (0..stride).for_each(|j| lanes[j] += lanes[j + stride]);
        }
        assert_eq!(y.to_bits(), round_bf16(lanes[0]).to_bits());
        let ascending = round_bf16(products.iter().fold(0.0, |sum, p| sum + p));
        ascending_differs += usize::from(ascending.to_bits() != y.to_bits());
    }
    assert!(ascending_differs > m / 2, "{ascending_differs}");
}

/// Case 11: the bytes of a row do not depend on how many rows there are.
#[test]
fn row_0_is_the_same_beside_any_number_of_rows() {
    let [n, k] = [9, 96];
    let all = W8A8::random(3, [130, n, k]);
    let random = &mut Random::new(4);
    let (x, weight) = (random.bf16s(130 * k, 1.0), random.bf16s(n * k, 1.0));
    let alone = linear_bf16(&x[..k], &weight, [1, n, k]);
    let alone_w8a8 = W8A8 {
        codes: all.codes[..k].to_vec(),
        scale: vec![all.scale[0]],
        weight: all.weight.clone(),
        weight_scale: all.weight_scale.clone(),
    }
    .linear();
    assert_same_bits(&all.linear()[..n], &alone_w8a8, "W8A8 of 130 rows");
    for m in 1..=130 {
        let out = linear_bf16(&x[..m * k], &weight, [m, n, k]);
        assert_same_bits(&out[..n], &alone, &format!("bf16 of {m} rows"));
    }
}

#[test]
fn the_longest_sum_is_exact() {
    let layer = W8A8 {
        codes: vec![127; MAX_W8A8_K],
        scale: vec![1.0],
        weight: vec![-128; MAX_W8A8_K],
        weight_scale: vec![1.0],
    };
    assert_eq!(layer.linear(), [b(-(127.0 * 128.0 * MAX_W8A8_K as f32))]);
}

#[test]
fn a_row_that_could_not_be_coded_is_nan_alone() {
    let mut layer = W8A8::random(5, [3, 4, 8]);
    let before = layer.linear();
    layer.scale[1] = f32::NAN;
    let after = layer.linear();
    assert!(after[4..8].iter().all(|y| y.is_nan()));
    assert_same_bits(&after[..4], &before[..4], "row 0");
    assert_same_bits(&after[8..], &before[8..], "row 2");
}

#[test]
fn epilogue_by_hand() {
    let check = |acc: i32, scale: f32, weight_scale: f32, expect: f32| {
        let found = dequantize(acc, scale, weight_scale);
        assert_same_bits(
            &[found],
            &[b(expect)],
            &format!("{acc} * {scale} * {weight_scale}"),
        );
    };
    check(3, 0.5, 0.5, 0.75);
    check(0, 1e-10 / 127.0, 1.0, 0.0);
    // Above 2^24 the conversion itself rounds to even: 2^24 + 1 is a tie, 2^24 + 3 another.
    check((1 << 24) + 1, 1.0, 1.0, 16_777_216.0);
    check(i32::MIN, 1.0, 1.0, -2_147_483_648.0);
    // The row's scale first: the product of the two scales alone would underflow to 0.
    check(1 << 22, 2f32.powi(-80), 2f32.powi(-72), 2f32.powi(-130));
    check(1, f32::NAN, 1.0, f32::NAN);
}

/// Three roundings in their order; the data tells it from the scales' product first, and from a
/// conversion that is not rounded to f32.
#[test]
fn epilogue_has_the_written_order() {
    let random = &mut Random::new(30);
    let (mut scales_first_differs, mut exact_acc_differs) = (0, 0);
    for _ in 0..1 << 22 {
        let (acc, scale, weight_scale) = (random.bits() as i32, random.f32(0.1), random.f32(0.1));
        let y = dequantize(acc, scale, weight_scale);
        assert_eq!(
            y.to_bits(),
            round_bf16((acc as f32 * scale) * weight_scale).to_bits()
        );
        let scales_first = round_bf16(acc as f32 * (scale * weight_scale));
        let exact_acc = round_bf16((f64::from(acc) * f64::from(scale)) as f32 * weight_scale);
        scales_first_differs += usize::from(scales_first.to_bits() != y.to_bits());
        exact_acc_differs += usize::from(exact_acc.to_bits() != y.to_bits());
    }
    assert!(
        scales_first_differs > 0 && exact_acc_differs > 0,
        "{scales_first_differs} {exact_acc_differs}"
    );
}

#[test]
fn refuses_shapes_by_name() {
    let mut bench = Bench::default();
    let weight = bench.input("weight", &[3, 4], bs(&[0.0; 12]));
    let x = bench.input("x", &[2, 3], bs(&[0.0; 6]));
    let out = bench.output("out", &[2, 3]);
    assert_refused(
        bench.check(LinearBf16 { x, weight, out }),
        &["linear_bf16", "buffer x", "[2, 4]"],
    );

    let long = MAX_W8A8_K + 1;
    let op = LinearW8A8Partial {
        codes: bench.input("codes", &[1, long], vec![0; long]),
        weight: bench.input("long", &[1, long], vec![0; long]),
        acc: bench.output("acc", &[1, 1]),
    };
    assert_refused(
        bench.check(op),
        &["linear_w8a8_partial", "long", "at most 131072"],
    );

    let op = LinearW8A8 {
        codes: bench.input("c", &[2, 4], vec![0; 8]),
        scale: bench.input("scale", &[2], vec![0.0; 2]),
        weight: bench.input("w", &[3, 4], vec![0; 12]),
        weight_scale: bench.input("one scale", &[1], vec![0.0]),
        out,
    };
    assert_refused(bench.check(op), &["linear_w8a8", "one scale", "[3]"]);
    let op = Dequantize {
        acc: bench.input("sums", &[2, 3], vec![0; 6]),
        scale: bench.input("scales", &[3], vec![0.0; 3]),
        weight_scale: bench.input("ws", &[3], vec![0.0; 3]),
        out,
    };
    assert_refused(bench.check(op), &["dequantize", "scales", "[2]"]);
}

proptest! {
    #[test]
    fn splitting_k_changes_nothing(seed: u64, m in 1usize..4, n in 1usize..6, k in 4usize..80, ranks in 1usize..5) {
        let layer = W8A8::random(seed, [m, n, k]);
        prop_assert_eq!(layer.linear(), layer.split_linear(ranks));
    }

    /// Against i64 sums and f64 products, which only the last rounding may tell apart.
    #[test]
    fn w8a8_is_the_scaled_integer_product(seed: u64, m in 1usize..4, n in 1usize..6, k in 1usize..80) {
        let layer = W8A8::random(seed, [m, n, k]);
        for (i, y) in layer.linear().iter().enumerate() {
            let (row, column) = (i / n, i % n);
            let sum: i64 = (0..k)
                .map(|j| i64::from(layer.codes[row * k + j]) * i64::from(layer.weight[column * k + j]))
                .sum();
            let exact = sum as f64 * f64::from(layer.scale[row]) * f64::from(layer.weight_scale[column]);
            common::assert_close(y.to_f32(), exact, 4e-3, "W8A8");
        }
    }
}
