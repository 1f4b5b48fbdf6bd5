//! The order of sums: against the contract's words, and its theorems.

use layerlet_core::numerics::{
    LANES, bf16, lane_dot, lane_dot_bf16, lane_sum, lane_sum_rows, round_bf16, tree_sum,
};
use proptest::prelude::*;

/// The contract read literally, sharing nothing with the implementation: the terms of one lane are
/// collected, added in order, and the lanes are folded by halves.
fn spec_sum(terms: &[f32]) -> f32 {
    fn fold(lanes: &[f32]) -> f32 {
        if let [one] = lanes {
            return *one;
        }
        let (low, high) = lanes.split_at(lanes.len() / 2);
        fold(&low.iter().zip(high).map(|(a, b)| a + b).collect::<Vec<_>>())
    }
    let lane = |j: usize| terms.iter().skip(j).step_by(32).fold(0.0, |sum, x| sum + x);
    fold(&(0..32).map(lane).collect::<Vec<f32>>())
}

fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

/// Terms whose sums round: magnitudes far apart, both signs, zeros of both signs, subnormals.
fn term() -> impl Strategy<Value = f32> {
    prop_oneof![
        8 => (any::<bool>(), 100u32..150, 0u32..1 << 23)
            .prop_map(|(s, e, m)| f32::from_bits(u32::from(s) << 31 | e << 23 | m)),
        1 => Just(0.0f32),
        1 => Just(-0.0f32),
        1 => (0u32..1 << 23).prop_map(f32::from_bits),
    ]
}

fn terms() -> impl Strategy<Value = Vec<f32>> {
    prop::collection::vec(term(), 0..200)
}

fn pairs() -> impl Strategy<Value = (Vec<f32>, Vec<f32>)> {
    prop::collection::vec((term(), term()), 0..200).prop_map(|v| v.into_iter().unzip())
}

proptest! {
    #[test]
    fn sums_follow_the_written_order(v in terms()) {
        prop_assert!(same(lane_sum(v.iter().copied()), spec_sum(&v)));
    }

    #[test]
    fn every_value_follows_the_written_order(
        v in prop::collection::vec(any::<u32>().prop_map(f32::from_bits), 0..100),
    ) {
        prop_assert!(same(lane_sum(v.iter().copied()), spec_sum(&v)));
    }

    #[test]
    fn columns_follow_the_written_order(v in prop::collection::vec((term(), [term(), term(), term()]), 0..200)) {
        let mut sums = [f32::NAN; 3];
        lane_sum_rows(v.iter().map(|(factor, row)| (*factor, &row[..])), &mut sums);
        for (c, sum) in sums.into_iter().enumerate() {
            let column: Vec<f32> = v.iter().map(|(factor, row)| factor * row[c]).collect();
            prop_assert!(same(sum, spec_sum(&column)), "column {c}");
        }
    }

    #[test]
    fn dots_round_each_product(ab in pairs()) {
        let (a, b) = ab;
        let products: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a * b).collect();
        prop_assert!(same(lane_dot(&a, &b), spec_sum(&products)));
    }

    #[test]
    fn bf16_dots_widen_first(ab in pairs()) {
        let round = |v: &[f32]| v.iter().map(|&x| round_bf16(x)).collect::<Vec<bf16>>();
        let (a, b) = (round(&ab.0), round(&ab.1));
        let widen = |v: &[bf16]| v.iter().map(|x| x.to_f32()).collect::<Vec<_>>();
        prop_assert!(same(lane_dot_bf16(&a, &b), lane_dot(&widen(&a), &widen(&b))));
    }

    #[test]
    fn zeros_may_pad_and_stand_for_skipped_terms(
        v in terms(),
        padding in 0usize..100,
        blocks in 0usize..3,
        mask in any::<u64>(),
    ) {
        let due = lane_sum(v.iter().copied());
        // At the end.
        let padded = v.iter().copied().chain(std::iter::repeat_n(0.0, padding));
        prop_assert!(same(lane_sum(padded), due));
        // Whole rounds of the lanes, in front.
        let led = std::iter::repeat_n(0.0, blocks * LANES).chain(v.iter().copied());
        prop_assert!(same(lane_sum(led), due));
        // In place of a term that a lane leaves out.
        let skipped = |i: usize| mask >> (i % 64) & 1 == 1;
        let mut lanes = [0.0f32; LANES];
        for (i, x) in v.iter().enumerate().filter(|&(i, _)| !skipped(i)) {
            lanes[i % LANES] += x;
        }
        let zeroed = v.iter().enumerate().map(|(i, &x)| if skipped(i) { 0.0 } else { x });
        prop_assert!(same(lane_sum(zeroed), tree_sum(lanes)));
    }

    #[test]
    fn no_sum_is_minus_zero(v in prop::collection::vec(
        prop_oneof![Just(0.0f32), Just(-0.0), Just(1.0), Just(-1.0), Just(f32::from_bits(0x8000_0001))],
        0..100,
    )) {
        prop_assert_ne!(lane_sum(v).to_bits(), (-0.0f32).to_bits());
    }
}

#[test]
fn order_matters() {
    // Within a lane: 2^24 + 1 - 2^24 loses the one, 2^24 - 2^24 + 1 keeps it.
    let mut v = vec![0.0f32; 96];
    (v[0], v[32], v[64]) = (16_777_216.0, 1.0, -16_777_216.0);
    let lost = lane_sum(v.iter().copied());
    v.swap(32, 64);
    assert_eq!((lost, lane_sum(v.iter().copied())), (0.0, 1.0));
    // Across lanes: lanes 0 and 16 meet first, lanes 0 and 1 last.
    let across = |i: usize, j: usize, k: usize| {
        let mut v = [0.0f32; 32];
        (v[i], v[j], v[k]) = (16_777_216.0, -16_777_216.0, 1.0);
        lane_sum(v)
    };
    assert_eq!((across(0, 16, 1), across(0, 1, 16)), (1.0, 0.0));
}

#[test]
fn a_fused_product_would_be_seen() {
    // (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24: the last term survives only in a fused product.
    let x = 1.0 + 2f32.powi(-12);
    let mut a = vec![0.0f32; 33];
    let mut b = a.clone();
    (a[0], b[0]) = (1.0, -1.0 - 2f32.powi(-11));
    (a[32], b[32]) = (x, x);
    assert_eq!(lane_dot(&a, &b), 0.0);
    assert_ne!(x.mul_add(x, -1.0 - 2f32.powi(-11)), 0.0);
}

/// Other orders that a kernel might take by mistake: random vectors tell each of them apart.
#[test]
fn teeth_other_orders_are_told_apart() {
    type Sum = fn(&[f32]) -> f32;
    fn lanes_of<const N: usize>(v: &[f32]) -> f32 {
        let mut lanes = [0.0f32; N];
        for (i, x) in v.iter().enumerate() {
            lanes[i % N] += x;
        }
        let mut stride = N / 2;
        while stride > 0 {
            for j in 0..stride {
                lanes[j] += lanes[j + stride];
            }
            stride /= 2;
        }
        lanes[0]
    }
    fn neighbours_first(v: &[f32]) -> f32 {
        let mut lanes = [0.0f32; LANES];
        for (i, x) in v.iter().enumerate() {
            lanes[i % LANES] += x;
        }
        let mut stride = 1;
        while stride < LANES {
            for j in (0..LANES).step_by(2 * stride) {
                lanes[j] += lanes[j + stride];
            }
            stride *= 2;
        }
        lanes[0]
    }
    fn in_chunks(v: &[f32]) -> f32 {
        let mut lanes = [0.0f32; LANES];
        let chunk = v.len().div_ceil(LANES).max(1);
        for (i, x) in v.iter().enumerate() {
            lanes[i / chunk] += x;
        }
        tree_sum(lanes)
    }
    fn without_the_tail(v: &[f32]) -> f32 {
        lane_sum(v[..v.len() / LANES * LANES].iter().copied())
    }
    let wrong: [(&str, Sum); 8] = [
        ("left to right", |v| v.iter().fold(0.0, |s, x| s + x)),
        ("8 lanes", lanes_of::<8>),
        ("16 lanes", lanes_of::<16>),
        ("64 lanes", lanes_of::<64>),
        ("neighbours first", neighbours_first),
        ("contiguous chunks", in_chunks),
        ("descending", |v| lane_sum(v.iter().rev().copied())),
        ("tail dropped", without_the_tail),
    ];
    let mut state = 1u32;
    let v: Vec<Vec<f32>> = (0..50)
        .map(|_| {
            (0..150)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 8) as f32 / 16_777_216.0 - 0.5
                })
                .collect()
        })
        .collect();
    for (name, sum) in wrong {
        let caught = v
            .iter()
            .filter(|v| !same(sum(v), lane_sum(v.iter().copied())))
            .count();
        assert!(caught > 0, "{name} passed for lane order");
    }
    assert!(
        v.iter()
            .all(|v| same(spec_sum(v), lane_sum(v.iter().copied())))
    );
}
