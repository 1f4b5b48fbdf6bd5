//! Sums and maxima over ranks.

mod common;

use common::{Bench, Random, assert_refused};
use layerlet_core::config::MAX_W8A8_K;
use layerlet_core::ops::{AllReduceMax, AllReduceSum, all_reduce_max, all_reduce_sum, row_absmax};
use proptest::prelude::*;

#[test]
fn maxima_see_what_any_rank_sees() {
    let check = |ranks: &[&[f32]], expect: &[f32]| {
        let mut out = vec![f32::NAN; expect.len()];
        all_reduce_max(ranks, &mut out);
        for (found, expect) in out.iter().zip(expect) {
            let same = found.to_bits() == expect.to_bits() || found.is_nan() && expect.is_nan();
            assert!(same, "{ranks:?}: {out:?}");
        }
    };
    let nan = f32::NAN;
    check(&[&[1.0, 0.0, 3.0]], &[1.0, 0.0, 3.0]);
    check(&[&[1.0, 5.0, 0.0], &[2.0, 4.0, 0.0]], &[2.0, 5.0, 0.0]);
    check(
        &[&[1.0, nan], &[nan, f32::INFINITY], &[7.0, 1.0]],
        &[nan, nan],
    );
    check(&[&[f32::INFINITY], &[3.0e38]], &[f32::INFINITY]);
    check(&[&[f32::from_bits(1)], &[0.0]], &[f32::from_bits(1)]);
}

#[test]
fn sums_are_exact_or_refused() {
    let check = |ranks: &[&[i32]], expect: Result<&[i32], i64>| {
        let mut out = vec![-1; ranks[0].len()];
        let done = all_reduce_sum(ranks, &mut out);
        assert_eq!(done.map(|()| &out[..]), expect, "{ranks:?}");
    };
    check(&[&[1, -2]], Ok(&[1, -2]));
    // In f32 the last would be 16777216.
    check(
        &[&[1, 16_777_216], &[10, 1], &[-100, 0]],
        Ok(&[-89, 16_777_217]),
    );
    // A partial sum may leave i32 as long as the whole does not.
    check(&[&[i32::MAX], &[1], &[-1]], Ok(&[i32::MAX]));
    check(&[&[i32::MIN], &[-1], &[1]], Ok(&[i32::MIN]));
    check(&[&[i32::MAX], &[1]], Err(2_147_483_648));
    check(&[&[i32::MIN], &[-1]], Err(-2_147_483_649));
    // The deepest row that a linear accepts, at the extremes of both operands.
    let most = 127 * 128 * MAX_W8A8_K as i32 / 2;
    check(&[&[most], &[most]], Ok(&[2 * most]));
}

#[test]
fn a_rank_alone_has_the_whole() {
    let mut bench = Bench::default();
    let max = AllReduceMax {
        x: bench.input("x", &[4], vec![-0.0, -2.5, f32::INFINITY, f32::NAN]),
        out: bench.output("max", &[4]),
    };
    let sum = AllReduceSum {
        x: bench.input("acc", &[2, 2], vec![i32::MIN, 0, -7, i32::MAX]),
        out: bench.output("sum", &[2, 2]),
    };
    bench.run(max.clone()).expect("one rank");
    bench.run(sum.clone()).expect("one rank");
    let bits: Vec<u32> = bench.get(max.out)[..3]
        .iter()
        .map(|m| m.to_bits())
        .collect();
    assert_eq!(bits, [0.0, 2.5, f32::INFINITY].map(f32::to_bits));
    assert!(bench.get(max.out)[3].is_nan());
    assert_eq!(bench.get(sum.out), [i32::MIN, 0, -7, i32::MAX]);
}

#[test]
fn shapes_are_refused() {
    let mut bench = Bench::default();
    let max = AllReduceMax {
        x: bench.output("x", &[4]),
        out: bench.output("max", &[3]),
    };
    let sum = AllReduceSum {
        x: bench.output("acc", &[2, 3]),
        out: bench.output("sum", &[3, 2]),
    };
    assert_refused(bench.check(max), &["all_reduce_max", "buffer x", "[3]"]);
    assert_refused(
        bench.check(sum),
        &["all_reduce_sum", "buffer acc", "[3, 2]"],
    );
}

proptest! {
    /// However a row is cut and in whatever order ranks arrive, its maximum and its sums are the same.
    #[test]
    fn cuts_and_order_change_nothing(width in 1usize..60, ranks in 1usize..9, seed: u64) {
        let random = &mut Random::new(seed);
        let row = random.bf16s(width, 1.0e3);
        let codes: Vec<i32> = random.i8s(width).into_iter().map(i32::from).collect();
        let cuts: Vec<_> = (0..ranks).map(|r| r * width / ranks..(r + 1) * width / ranks).collect();
        let maxima: Vec<[f32; 1]> = cuts.iter().map(|c| [row_absmax(&row[c.clone()])]).collect();
        let sums: Vec<[i32; 1]> = cuts.iter().map(|c| [codes[c.clone()].iter().sum()]).collect();
        let order = random.permutation(ranks);
        let maxima: Vec<&[f32]> = order.iter().map(|&r| &maxima[r as usize][..]).collect();
        let sums: Vec<&[i32]> = order.iter().map(|&r| &sums[r as usize][..]).collect();
        let (mut max, mut sum) = ([f32::NAN], [0]);
        all_reduce_max(&maxima, &mut max);
        all_reduce_sum(&sums, &mut sum).expect("small");
        prop_assert_eq!(max[0].to_bits(), row_absmax(&row).to_bits());
        prop_assert_eq!(sum[0], codes.iter().sum::<i32>());
    }
}
