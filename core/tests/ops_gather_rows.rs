//! Picking rows.

mod common;

use common::{Bench, Random, assert_refused, bytes};
use layerlet_core::NONE;
use layerlet_core::launch::{LaunchError, Operation, Traffic};
use layerlet_core::numerics::bf16;
use layerlet_core::ops::GatherRows;
use proptest::prelude::*;

fn gather(x: &[bf16], width: usize, rows: &[u32]) -> Result<Vec<bf16>, LaunchError> {
    let mut bench = Bench::default();
    let op = GatherRows {
        x: bench.input("x", &[x.len() / width, width], x.to_vec()),
        rows: bench.input("rows", &[rows.len()], rows.to_vec()),
        out: bench.output("out", &[rows.len(), width]),
    };
    bench.run(op.clone())?;
    Ok(bench.get(op.out).to_vec())
}

#[test]
fn bits_are_copied() {
    let x: Vec<bf16> = [0x7fc1u16, 0x8000, 0x0001, 0xffff, 0x7f80, 0x1234]
        .map(bf16::from_bits)
        .into();
    let out = gather(&x, 2, &[2, NONE, 0, 0]).expect("good rows");
    let expect: [u16; 8] = [0x7f80, 0x1234, 0, 0, 0x7fc1, 0x8000, 0x7fc1, 0x8000];
    assert_eq!(bytes(&out), bytes(&expect.map(bf16::from_bits)));
    assert_eq!(gather(&x, 2, &[]).expect("no rows"), []);
}

#[test]
fn a_row_that_does_not_exist_is_refused() {
    for row in [3, NONE - 1] {
        let refused = gather(&[bf16::ONE; 6], 2, &[0, row]);
        assert_refused(
            refused.map(drop),
            &["gather_rows", "a row", &row.to_string(), "below 3"],
        );
    }
}

#[test]
fn shapes_are_refused() {
    let check = |x: &[usize], rows: usize, out: &[usize], fragments: &[&str]| {
        let mut bench = Bench::default();
        let op = GatherRows {
            x: bench.output("x", x),
            rows: bench.output("rows", &[rows]),
            out: bench.output("out", out),
        };
        assert_refused(bench.check(op), fragments);
    };
    check(
        &[3, 0],
        2,
        &[2, 0],
        &["gather_rows", "buffer out", "H not 0"],
    );
    check(&[3, 4], 2, &[2, 5], &["buffer x", "[3, 5]"]);
    check(&[3, 5], 3, &[2, 5], &["buffer rows", "[2]"]);
    check(&[15], 2, &[2, 5], &["buffer x", "rank 2"]);
}

/// Only rows that are picked are read, none of them twice.
#[test]
fn traffic_counts_rows() {
    let check = |t: usize, r: usize, expect: [u64; 2]| {
        let mut bench = Bench::default();
        let op = GatherRows {
            x: bench.output("x", &[t, 8]),
            rows: bench.output("rows", &[r]),
            out: bench.output("out", &[r, 8]),
        };
        let [min, max] = expect;
        assert_eq!(op.traffic(&bench.table), Traffic { min, max }, "{r} of {t}");
    };
    check(100, 3, [3 * 20 + 16, 3 * 20 + 3 * 16]);
    check(2, 5, [5 * 20 + 16, 5 * 20 + 2 * 16]);
    check(5, 0, [0, 0]);
}

proptest! {
    #[test]
    fn each_row_is_its_source(t in 1usize..9, picks in prop::collection::vec(0u32..12, 0..20), seed: u64) {
        let width = 3;
        let x = Random::new(seed).bf16s(t * width, 9.0);
        let rows: Vec<u32> = picks.iter().map(|&p| if p as usize >= t { NONE } else { p }).collect();
        let out = gather(&x, width, &rows).expect("good rows");
        for (&row, out) in rows.iter().zip(out.chunks_exact(width)) {
            let expect = if row == NONE { &[bf16::ZERO; 3][..] } else { &x[row as usize * width..][..width] };
            prop_assert_eq!(out, expect);
        }
    }
}
