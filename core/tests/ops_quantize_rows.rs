//! Activation codes. Cases 1, 2 and 3 of the field's faults: zero rows, subnormal rows, shared scales.

mod common;

use common::{Bench, Random, assert_refused, b, bs};
use layerlet_core::numerics::{bf16, round_bf16};
use layerlet_core::ops::{QuantizeRows, QuantizeRowsBy, RowAbsmax, quantize_row};
use proptest::prelude::*;

fn quantize(rows: &[Vec<bf16>]) -> Vec<(Vec<i8>, f32)> {
    let (m, k) = (rows.len(), rows[0].len());
    let mut bench = Bench::default();
    let op = QuantizeRows {
        x: bench.input("x", &[m, k], rows.concat()),
        codes: bench.output("codes", &[m, k]),
        scale: bench.output("scale", &[m]),
    };
    bench.run(op.clone()).expect("good shapes");
    let codes = bench.get(op.codes).chunks_exact(k).map(<[i8]>::to_vec);
    codes.zip(bench.get(op.scale).iter().copied()).collect()
}

/// The same through the two halves that K-split ranks use.
fn quantize_split(rows: &[Vec<bf16>], ranks: usize) -> Vec<(Vec<i8>, f32)> {
    let (m, k) = (rows.len(), rows[0].len());
    let part = |rank: usize| {
        let columns = rank * k / ranks..(rank + 1) * k / ranks;
        rows.iter()
            .map(|row| row[columns.clone()].to_vec())
            .collect::<Vec<_>>()
    };
    let maxima: Vec<Vec<f32>> = (0..ranks).map(|rank| absmax(&part(rank))).collect();
    let reduced: Vec<f32> = (0..m)
        .map(|row| {
            maxima
                .iter()
                .map(|rank| rank[row].to_bits())
                .max()
                .map(f32::from_bits)
                .unwrap()
        })
        .collect();
    let mut result = vec![(Vec::new(), 0.0); m];
    for rank in 0..ranks {
        let part = part(rank);
        let width = part[0].len();
        let mut bench = Bench::default();
        let op = QuantizeRowsBy {
            x: bench.input("x", &[m, width], part.concat()),
            absmax: bench.input("absmax", &[m], reduced.clone()),
            codes: bench.output("codes", &[m, width]),
            scale: bench.output("scale", &[m]),
        };
        bench.run(op.clone()).expect("good shapes");
        for (row, (codes, scale)) in result.iter_mut().enumerate() {
            codes.extend(&bench.get(op.codes)[row * width..][..width]);
            *scale = bench.get(op.scale)[row];
        }
    }
    result
}

fn absmax(rows: &[Vec<bf16>]) -> Vec<f32> {
    let (m, k) = (rows.len(), rows[0].len());
    let mut bench = Bench::default();
    let op = RowAbsmax {
        x: bench.input("x", &[m, k], rows.concat()),
        absmax: bench.output("absmax", &[m]),
    };
    bench.run(op.clone()).expect("good shapes");
    bench.get(op.absmax).to_vec()
}

/// Compares bits; any NaN is as good as another.
fn same(a: &(Vec<i8>, f32), b: &(Vec<i8>, f32)) -> bool {
    a.0 == b.0 && (a.1.to_bits() == b.1.to_bits() || (a.1.is_nan() && b.1.is_nan()))
}

#[test]
fn codes_and_scale() {
    let floor_scale = 1e-10f32 / 127.0;
    let check = |row: &[f32], codes: &[i8], scale: f32| {
        let found = quantize(&[bs(row)]).remove(0);
        assert!(
            same(&found, &(codes.to_vec(), scale)),
            "{row:?}: {found:?}, expected {codes:?} {scale}"
        );
    };
    check(&[127.0, -127.0, 1.0, 0.0, -0.0], &[127, -127, 1, 0, 0], 1.0);
    // Ties go to the even code, on both sides of zero.
    check(
        &[127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5],
        &[127, 0, 2, 2, 0, -2, -2],
        1.0,
    );
    check(&[254.0, -1.0, 3.0, 5.0], &[127, 0, 2, 2], 2.0);
    // -128 is not used.
    check(&[-2.0, 1.0], &[-127, 64], 2.0 / 127.0);
    // Zeros, subnormals and everything under the floor.
    check(&[0.0, -0.0], &[0, 0], floor_scale);
    check(&[1e-40, -9e-39, 1.1e-38], &[0, 0, 0], floor_scale);
    check(&[9.9e-11, -5e-11], &[0, 0], floor_scale);
    // The largest values.
    let max = bf16::MAX.to_f32();
    check(&[max, -max, max / 2.0], &[127, -127, 64], max / 127.0);
    // What cannot be coded.
    check(&[1.0, f32::NAN, 2.0], &[0, 0, 0], f32::NAN);
    check(&[1.0, f32::INFINITY], &[0, 0], f32::NAN);
    check(&[f32::NEG_INFINITY, f32::NAN], &[0, 0], f32::NAN);
}

#[test]
fn the_floor_lies_at_1e_10() {
    // The bf16 neighbours of 1e-10: the first is under it, the second above.
    let above = (0u16..0x7f80)
        .map(bf16::from_bits)
        .find(|x| x.to_f32() >= 1e-10)
        .unwrap();
    let under = bf16::from_bits(above.to_bits() - 1);
    let codes = |x: bf16| quantize(&[vec![x, -x]]).remove(0);
    assert_eq!(codes(under), (vec![0, 0], 1e-10 / 127.0));
    assert_eq!(codes(above), (vec![127, -127], above.to_f32() / 127.0));
}

/// A data set on which the field's other formulas give other codes; ours must be told from each.
#[test]
fn the_formula_is_the_written_one() {
    let random = &mut Random::new(1);
    let (mut division, mut away, mut coarse) = (0, 0, 0);
    for _ in 0..200 {
        let width = 5.0 + random.f32(4.0);
        let row = random.bf16s(2048, width);
        let mut codes = vec![0; row.len()];
        let scale = quantize_row(&row, &mut codes);
        let absmax = row.iter().map(|x| x.to_f32().abs()).fold(0.0, f32::max);
        assert_eq!(scale.to_bits(), (absmax / 127.0).to_bits());
        let reciprocal = 1.0 / scale;
        let bf16_scale = round_bf16(scale).to_f32();
        for (x, &code) in row.iter().map(|x| x.to_f32()).zip(&codes) {
            assert_eq!(
                f32::from(code),
                (x * reciprocal).round_ties_even().clamp(-127.0, 127.0)
            );
            division += usize::from(f32::from(code) != (x / scale).round_ties_even());
            away += usize::from(f32::from(code) != (x * (127.0 / absmax)).round());
            coarse += usize::from(f32::from(code) != (x / bf16_scale).round_ties_even());
        }
    }
    assert!(
        division > 0 && away > 0 && coarse > 0,
        "{division} {away} {coarse}"
    );
}

#[test]
fn refuses_shapes_by_name() {
    let mut bench = Bench::default();
    let op = QuantizeRows {
        x: bench.input("x", &[2, 3], bs(&[1.0; 6])),
        codes: bench.output("codes", &[3, 2]),
        scale: bench.output("scale", &[2]),
    };
    assert_refused(
        bench.check(op.clone()),
        &["quantize_rows", "codes", "[2, 3]"],
    );
    let by = QuantizeRowsBy {
        x: op.x,
        absmax: bench.input("absmax", &[3], vec![0.0; 3]),
        codes: bench.output("good codes", &[2, 3]),
        scale: op.scale,
    };
    assert_refused(bench.check(by), &["quantize_rows_by", "absmax", "[2]"]);
    let empty = RowAbsmax {
        x: bench.input("empty", &[2, 0], vec![]),
        absmax: bench.output("maxima", &[2]),
    };
    assert_refused(bench.check(empty), &["row_absmax", "empty", "K not 0"]);
}

/// Rows of every kind: ordinary, huge, tiny, subnormal, zero, with NaN or infinity.
fn any_row(k: usize) -> impl Strategy<Value = Vec<bf16>> {
    let ordinary = (any::<u64>(), -30i32..30)
        .prop_map(move |(seed, e)| Random::new(seed).bf16s(k, 2f32.powi(e)));
    let bits = proptest::collection::vec(any::<u16>().prop_map(bf16::from_bits), k);
    prop_oneof![
        ordinary,
        bits,
        Just(vec![bf16::ZERO; k]),
        Just(vec![b(1e-39); k])
    ]
}

proptest! {
    /// Case 3, and the neighbours of cases 1 and 2: a row's bytes are its own.
    #[test]
    fn a_row_does_not_know_its_company(rows in proptest::collection::vec(any_row(40), 1..6)) {
        for (row, beside) in rows.iter().zip(quantize(&rows)) {
            let alone = quantize(std::slice::from_ref(row)).remove(0);
            prop_assert!(same(&alone, &beside), "{row:?}: {alone:?} {beside:?}");
        }
        let giants: Vec<Vec<bf16>> = rows
            .iter()
            .map(|row| row.iter().map(|x| b(x.to_f32() * 1000.0)).collect())
            .collect();
        let mixed = quantize(&[rows.clone(), giants].concat());
        for (alone, beside) in quantize(&rows).iter().zip(&mixed) {
            prop_assert!(same(alone, beside));
        }
    }

    /// Codes stand for their values to half a step, and scales are finite where values are.
    #[test]
    fn codes_stand_for_values(row in any_row(40)) {
        let (codes, scale) = quantize(std::slice::from_ref(&row)).remove(0);
        let finite = row.iter().all(|x| x.is_finite());
        prop_assert_eq!(scale.is_finite(), finite);
        for (x, &code) in row.iter().zip(&codes).filter(|_| finite) {
            let error = (f64::from(x.to_f32()) - f64::from(code) * f64::from(scale)).abs();
            prop_assert!(error <= f64::from(scale) * 0.500_01 || f64::from(x.to_f32()).abs() < 1e-10);
        }
    }

    #[test]
    fn halves_give_the_whole(rows in proptest::collection::vec(any_row(48), 1..4), ranks in 1usize..5) {
        for (whole, split) in quantize(&rows).iter().zip(&quantize_split(&rows, ranks)) {
            prop_assert!(same(whole, split), "{whole:?} {split:?}");
        }
    }
}
