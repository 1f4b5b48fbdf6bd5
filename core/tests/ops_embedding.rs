//! Embedding lookup.

mod common;

use common::{Bench, assert_refused, assert_same_bits, bs};
use layerlet_core::NONE;
use layerlet_core::launch::{LaunchError, Operation, Traffic};
use layerlet_core::numerics::bf16;
use layerlet_core::ops::Embedding;

/// Rows of a table `[3, 2]`.
const TABLE: [f32; 6] = [1.0, -2.0, 3.0, -0.0, 5.0, 6.0];

fn lookup(ids: &[u32], row_seq: &[u32]) -> Result<Vec<bf16>, LaunchError> {
    let mut bench = Bench::default();
    let op = embedding(&mut bench, ids, row_seq);
    bench.run(op.clone())?;
    Ok(bench.get(op.out).to_vec())
}

fn embedding(bench: &mut Bench, ids: &[u32], row_seq: &[u32]) -> Embedding {
    Embedding {
        token_ids: bench.input("ids", &[ids.len()], ids.to_vec()),
        row_seq: bench.input("row_seq", &[row_seq.len()], row_seq.to_vec()),
        table: bench.input("table", &[3, 2], bs(&TABLE)),
        out: bench.output("out", &[ids.len(), 2]),
    }
}

#[test]
fn copies_live_rows_and_zeroes_the_others() {
    let check = |ids: &[u32], row_seq: &[u32], expect: &[f32]| {
        let out = lookup(ids, row_seq).expect("good data");
        assert_same_bits(&out, &bs(expect), &format!("{ids:?} {row_seq:?}"));
    };
    check(&[2, 0, 2], &[0, 0, 1], &[5.0, 6.0, 1.0, -2.0, 5.0, 6.0]);
    check(&[1], &[7], &[3.0, -0.0]);
    check(&[1, 99], &[0, NONE], &[3.0, -0.0, 0.0, 0.0]);
    check(&[NONE], &[NONE], &[0.0, 0.0]);
    check(&[], &[], &[]);
}

#[test]
fn refuses_ids_out_of_the_vocabulary() {
    for id in [3, 4, NONE] {
        let fragments = ["token id of row 1", &format!("{id}"), "vocabulary's 3"];
        assert_refused(lookup(&[0, id], &[0, 0]).map(|_| ()), &fragments);
    }
}

#[test]
fn refuses_shapes_by_name() {
    let mut bench = Bench::default();
    let op = embedding(&mut bench, &[0, 1], &[0]);
    assert_refused(bench.check(op.clone()), &["row_seq", "[2]"]);
    let op = Embedding {
        row_seq: bench.input("good row_seq", &[2], vec![0, 0]),
        out: bench.output("wide", &[2, 3]),
        ..op
    };
    assert_refused(bench.check(op.clone()), &["wide", "[2, 2]"]);
    let op = Embedding {
        table: bench.input("empty", &[3, 0], vec![]),
        ..op
    };
    assert_refused(bench.check(op), &["empty", "neither of them 0"]);
}

#[test]
fn moves_only_the_rows_it_looks_up() {
    let mut bench = Bench::default();
    let op = embedding(&mut bench, &[0, 1, 2, 2, 2], &[0; 5]);
    let (indices, rows) = (2 * 5 * 4, 5 * 2 * 2);
    let expect = Traffic {
        min: indices + rows,
        max: indices + 2 * rows,
    };
    assert_eq!(op.traffic(&bench.table), expect);
}
