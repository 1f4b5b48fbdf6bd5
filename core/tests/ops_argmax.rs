//! The index of the largest logit.

mod common;

use common::{Bench, assert_refused, bs};
use layerlet_core::NONE;
use layerlet_core::ops::Argmax;
use proptest::prelude::*;

const INF: f32 = f32::INFINITY;
const NAN: f32 = f32::NAN;

fn argmax(logits: &[f32], out_rows: &[u32]) -> Vec<u32> {
    let rows = out_rows.len();
    let mut bench = Bench::default();
    let op = Argmax {
        logits: bench.input("logits", &[rows, logits.len() / rows], bs(logits)),
        out_rows: bench.input("out_rows", &[rows], out_rows.to_vec()),
        tokens: bench.output("tokens", &[rows]),
    };
    bench.run(op.clone()).expect("good shapes");
    bench.get(op.tokens).to_vec()
}

/// Case 7.
#[test]
fn ties_zeros_and_nans() {
    let check =
        |logits: &[f32], expect: u32| assert_eq!(argmax(logits, &[0]), [expect], "{logits:?}");
    check(&[4.0], 0);
    check(&[1.0, 3.0, 2.0, 3.0], 1);
    check(&[2.0; 5], 0);
    check(&[-1.0, -0.0, 0.0], 1);
    check(&[-1.0, 0.0, -0.0], 1);
    check(&[NAN, -5.0, NAN, -4.0], 3);
    check(&[NAN, -INF], 1);
    check(&[-INF, -INF, NAN], 0);
    check(&[NAN; 3], 0);
    check(&[1.0, INF, NAN, INF], 1);
    check(&[-3.0e38, -2.0e38, -INF], 1);
}

#[test]
fn inert_rows_choose_nothing() {
    assert_eq!(
        argmax(&[1.0, 2.0, 2.0, 1.0, NAN, 0.0], &[5, NONE, 0]),
        [1, NONE, 1]
    );
}

#[test]
fn shapes_are_refused() {
    let check = |logits: [usize; 2], out_rows, tokens, fragments: &[&str]| {
        let mut bench = Bench::default();
        let op = Argmax {
            logits: bench.output("logits", &logits),
            out_rows: bench.output("out_rows", &[out_rows]),
            tokens: bench.output("tokens", &[tokens]),
        };
        assert_refused(bench.check(op), fragments);
    };
    check([2, 0], 2, 2, &["argmax", "buffer logits", "V from 1"]);
    check([2, 9], 3, 2, &["buffer out_rows", "[2]"]);
    check([2, 9], 2, 9, &["buffer tokens", "[2]"]);
}

proptest! {
    #[test]
    fn nothing_earlier_is_as_large(
        logits in prop::collection::vec(prop::sample::select(vec![-1.0f32, -0.0, 0.0, 2.0, NAN, INF, -INF]), 1..50),
    ) {
        let best = argmax(&logits, &[0])[0] as usize;
        if logits[best].is_nan() {
            prop_assert!(best == 0 && logits.iter().all(|l| l.is_nan()));
        } else {
            prop_assert!(logits.iter().all(|&l| l.is_nan() || l <= logits[best]));
            prop_assert!(logits[..best].iter().all(|&l| l.is_nan() || l < logits[best]));
        }
    }
}
