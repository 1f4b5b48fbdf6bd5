//! Joining by columns.

mod common;

use common::{Bench, assert_refused, bytes};
use layerlet_core::numerics::bf16;
use layerlet_core::ops::ConcatColumns;

#[test]
fn bits_stand_side_by_side() {
    let words = |w: &[u16]| -> Vec<bf16> { w.iter().copied().map(bf16::from_bits).collect() };
    let mut bench = Bench::default();
    let op = ConcatColumns {
        a: bench.input("a", &[2, 1], words(&[0x7fc1, 0x8000])),
        b: bench.input("b", &[2, 2], words(&[1, 2, 3, 0xffff])),
        out: bench.output("out", &[2, 3]),
    };
    bench.run(op.clone()).expect("good shapes");
    let expect = words(&[0x7fc1, 1, 2, 0x8000, 3, 0xffff]);
    assert_eq!(bytes(bench.get(op.out)), bytes(&expect));
}

#[test]
fn shapes_are_refused() {
    let check = |a: [usize; 2], b: [usize; 2], out: [usize; 2], fragments: &[&str]| {
        let mut bench = Bench::default();
        let op = ConcatColumns {
            a: bench.output("a", &a),
            b: bench.output("b", &b),
            out: bench.output("out", &out),
        };
        assert_refused(bench.check(op), fragments);
    };
    check(
        [3, 0],
        [3, 2],
        [3, 2],
        &["concat_columns", "buffer a", "A not 0"],
    );
    check(
        [3, 2],
        [3, 0],
        [3, 2],
        &["concat_columns", "buffer b", "B not 0"],
    );
    check([3, 4], [2, 2], [3, 6], &["buffer b", "[3, 2]"]);
    check([3, 4], [3, 2], [3, 7], &["buffer out", "[3, 6]"]);
}
