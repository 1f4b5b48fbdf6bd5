//! The router: who is chosen, with what weight, whatever the logits are.

mod common;

use common::{Bench, Random, assert_close, assert_refused, bs};
use layerlet_core::NONE;
use layerlet_core::numerics::{bf16, exp};
use layerlet_core::ops::RouterTopK;
use proptest::prelude::*;

const INF: f32 = f32::INFINITY;
const NAN: f32 = f32::NAN;

/// Ids and weights of rows of `experts` logits.
fn route(logits: &[bf16], row_seq: &[u32], [experts, k]: [usize; 2]) -> (Vec<u32>, Vec<f32>) {
    let rows = row_seq.len();
    let mut bench = Bench::default();
    let op = RouterTopK {
        logits: bench.input("logits", &[rows, experts], logits.to_vec()),
        row_seq: bench.input("row_seq", &[rows], row_seq.to_vec()),
        ids: bench.output("ids", &[rows, k]),
        weights: bench.output("weights", &[rows, k]),
    };
    bench.run(op.clone()).expect("good shapes");
    (bench.get(op.ids).to_vec(), bench.get(op.weights).to_vec())
}

/// One row; weights are compared by bits, and NaN equals NaN.
#[track_caller]
fn check(logits: &[f32], ids: &[u32], weights: &[f32]) {
    let (found_ids, found_weights) = route(&bs(logits), &[0], [logits.len(), ids.len()]);
    assert_eq!(found_ids, ids, "{logits:?}");
    let bits = |w: &[f32]| -> Vec<u32> {
        w.iter()
            .map(|w| if w.is_nan() { NONE } else { w.to_bits() })
            .collect()
    };
    assert_eq!(
        bits(&found_weights),
        bits(weights),
        "{logits:?}: {found_weights:?}"
    );
}

/// Case 7.
#[test]
fn ties_take_the_lowest_expert() {
    check(&[2.5; 8], &[0, 1, 2, 3], &[0.25; 4]);
    check(&[9.0, 3.0, 3.0, 3.0, 9.0], &[0, 4], &[0.5, 0.5]);
    // The tie is exactly at the last rank.
    let (ids, _) = route(&bs(&[1.0, 3.0, 5.0, 3.0, 3.0]), &[0], [5, 2]);
    assert_eq!(ids, [2, 1]);
    check(&[-0.0, 0.0, -0.0, 0.0], &[0, 1], &[0.5, 0.5]);
    check(&[0.0, -0.0], &[0, 1], &[0.5, 0.5]);
    check(&[-1.0, -0.0, 0.0], &[1], &[1.0]);
}

#[test]
fn nan_loses_and_infinities_show() {
    check(&[NAN, 1.0, NAN, 1.0], &[1, 3], &[0.5, 0.5]);
    check(&[NAN, 1.0, NAN, 1.0], &[1, 3, 0], &[0.5, 0.5, 0.0]);
    check(&[NAN, -INF, 4.0], &[2, 1, 0], &[1.0, 0.0, 0.0]);
    check(&[NAN; 3], &[0, 1], &[NAN, NAN]);
    check(&[-INF; 3], &[0, 1], &[NAN, NAN]);
    check(&[1.0, INF, 2.0], &[1, 2], &[NAN, NAN]);
    // Probabilities that vanish: experts are still told apart by their logits.
    check(&[-300.0, -200.0, 0.0], &[2, 1], &[1.0, 0.0]);
}

/// The formula written out once more; the sums in other orders must give other bytes somewhere.
#[test]
fn weights_have_their_written_order() {
    let [rows, experts, k] = [60, 77, 8];
    let logits = Random::new(1).bf16s(rows * experts, 3.0);
    let (ids, weights) = route(&logits, &vec![0; rows], [experts, k]);
    let mut differs = [0; 4];
    for row in 0..rows {
        let l: Vec<f32> = logits[row * experts..][..experts]
            .iter()
            .map(|l| l.to_f32())
            .collect();
        let max = l.iter().copied().fold(-INF, f32::max);
        let e: Vec<f32> = l.iter().map(|l| exp(l - max)).collect();
        let mut lanes = [0f32; 32];
        e.iter().enumerate().for_each(|(i, e)| lanes[i % 32] += e);
        for stride in [16, 8, 4, 2, 1] {
            (0..stride).for_each(|j| lanes[j] += lanes[j + stride]);
        }
        let ids = &ids[row * k..][..k];
        let by = |total: f32, reciprocal: bool, backwards: bool, renormalise: bool| -> Vec<u32> {
            let mut p: Vec<f32> = ids.iter().map(|&id| e[id as usize] / total).collect();
            let sum = match backwards {
                false => p.iter().fold(0.0, |sum, p| sum + p),
                true => p.iter().rev().fold(0.0, |sum, p| sum + p),
            };
            match (renormalise, reciprocal) {
                (false, _) => {}
                (true, false) => p.iter_mut().for_each(|p| *p /= sum),
                (true, true) => p.iter_mut().for_each(|p| *p *= 1.0 / sum),
            }
            p.iter().map(|p| p.to_bits()).collect()
        };
        let found: Vec<u32> = weights[row * k..][..k]
            .iter()
            .map(|w| w.to_bits())
            .collect();
        assert_eq!(found, by(lanes[0], false, false, true), "row {row}");
        let ascending = e.iter().fold(0.0, |sum, e| sum + e);
        differs[0] += usize::from(found != by(ascending, false, false, true));
        differs[1] += usize::from(found != by(lanes[0], true, false, true));
        differs[2] += usize::from(found != by(lanes[0], false, true, true));
        differs[3] += usize::from(found != by(lanes[0], false, false, false));
    }
    assert!(differs.iter().all(|&n| n > 0), "{differs:?}");
}

/// Case 11, and a row that is broken breaks no other.
#[test]
fn a_row_depends_on_nothing_else() {
    let [experts, k] = [37, 5];
    let mut logits = Random::new(2).bf16s(130 * experts, 2.0);
    logits[3 * experts..4 * experts].fill(bf16::NAN);
    let (ids, weights) = route(&logits, &[0; 130], [experts, k]);
    for rows in 1..=130 {
        let some = route(&logits[..rows * experts], &vec![0; rows], [experts, k]);
        assert_eq!(some.0, ids[..rows * k]);
        let bits = |w: &[f32]| -> Vec<u32> { w.iter().map(|w| w.to_bits()).collect() };
        assert_eq!(bits(&some.1), bits(&weights[..rows * k]));
    }
    assert!(weights[4 * k..].iter().all(|w| w.is_finite()));
}

#[test]
fn inert_rows_route_nowhere() {
    let logits = bs(&[1.0, 2.0, 3.0, NAN, 3.0, 2.0]);
    let (ids, weights) = route(&logits, &[NONE, 4], [3, 2]);
    assert_eq!(ids, [NONE, NONE, 1, 2]);
    assert_eq!(weights[..2], [0.0, 0.0]);
    assert_eq!(route(&[], &[], [3, 2]), (vec![], vec![]));
}

#[test]
fn shapes_are_refused() {
    let check = |experts, ids: [usize; 2], weights: [usize; 2], row_seq, fragments: &[&str]| {
        let mut bench = Bench::default();
        let op = RouterTopK {
            logits: bench.output("logits", &[3, experts]),
            row_seq: bench.output("row_seq", &[row_seq]),
            ids: bench.output("ids", &ids),
            weights: bench.output("weights", &weights),
        };
        assert_refused(bench.check(op), fragments);
    };
    check(
        4,
        [3, 0],
        [3, 0],
        3,
        &["router_top_k", "buffer ids", "1 to 4"],
    );
    check(
        4,
        [3, 5],
        [3, 5],
        3,
        &["router_top_k", "buffer ids", "1 to 4"],
    );
    check(0, [3, 1], [3, 1], 3, &["router_top_k", "buffer ids"]);
    check(4, [2, 2], [3, 2], 3, &["buffer ids", "[3, 2]"]);
    check(4, [3, 2], [3, 3], 3, &["buffer weights", "[3, 2]"]);
    check(4, [3, 2], [3, 2], 4, &["buffer row_seq", "[3]"]);
}

proptest! {
    /// Ranks are those of a stable sort; values are few, so ties abound.
    #[test]
    fn ranks_are_a_stable_sort(
        logits in prop::collection::vec(
            prop::sample::select(vec![-2.0f32, -0.0, 0.0, 0.5, 0.5, 3.0, NAN, -INF]), 1..40),
        k in 1usize..10,
    ) {
        let k = k.min(logits.len());
        let (ids, weights) = route(&bs(&logits), &[0], [logits.len(), k]);
        let mut order: Vec<u32> = (0..logits.len() as u32).collect();
        order.sort_by(|&a, &b| {
            let (a, b) = (logits[a as usize], logits[b as usize]);
            a.is_nan().cmp(&b.is_nan()).then(b.partial_cmp(&a).unwrap_or(std::cmp::Ordering::Equal))
        });
        prop_assert_eq!(&ids, &order[..k]);
        let exps: Vec<f64> = ids.iter().map(|&id| f64::from(logits[id as usize]).exp()).collect();
        let sum: f64 = exps.iter().filter(|e| !e.is_nan()).sum();
        if sum > 0.0 {
            for (&w, e) in weights.iter().zip(exps) {
                assert_close(w, if e.is_nan() { 0.0 } else { e / sum }, 1e-6, "weight");
            }
        }
    }
}
