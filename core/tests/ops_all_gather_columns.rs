//! Joining the ranks' columns.

mod common;

use common::{Bench, Random, assert_refused, bytes};
use layerlet_core::numerics::bf16;
use layerlet_core::ops::{AllGatherColumns, all_gather_columns, linear_bf16_row};

fn words(w: &[u16]) -> Vec<bf16> {
    w.iter().copied().map(bf16::from_bits).collect()
}

#[test]
fn ranks_stand_in_order() {
    let check = |ranks: &[&[u16]], part: usize, expect: &[u16]| {
        let ranks: Vec<Vec<bf16>> = ranks.iter().map(|r| words(r)).collect();
        let ranks: Vec<&[bf16]> = ranks.iter().map(Vec::as_slice).collect();
        let mut out = words(&vec![0xaaaa; expect.len()]);
        all_gather_columns(&ranks, part, &mut out);
        assert_eq!(bytes(&out), bytes(&words(expect)));
    };
    check(&[&[1, 2, 3, 4]], 2, &[1, 2, 3, 4]);
    check(&[&[1, 2, 3], &[11, 12, 13]], 1, &[1, 11, 2, 12, 3, 13]);
    check(
        &[&[1, 2, 3, 4], &[0x7fc1, 12, 13, 14], &[21, 0x8000, 23, 24]],
        2,
        &[1, 2, 0x7fc1, 12, 21, 0x8000, 3, 4, 13, 14, 23, 24],
    );
}

/// A linear cut by output is the whole linear.
#[test]
fn a_linear_split_by_output_has_the_same_bytes() {
    let (rows, n, k) = (5, 12, 50);
    let random = &mut Random::new(3);
    let (x, weight) = (random.bf16s(rows * k, 1.0), random.bf16s(n * k, 1.0));
    let linear = |weight: &[bf16]| -> Vec<bf16> {
        let columns = weight.len() / k;
        let mut out = vec![bf16::ZERO; rows * columns];
        for (x, out) in x.chunks_exact(k).zip(out.chunks_exact_mut(columns)) {
            linear_bf16_row(x, weight, out);
        }
        out
    };
    for ranks in [1, 2, 3, 4, 6, 12] {
        let part = n / ranks;
        let parts: Vec<Vec<bf16>> = weight.chunks_exact(part * k).map(linear).collect();
        let parts: Vec<&[bf16]> = parts.iter().map(Vec::as_slice).collect();
        let mut out = vec![bf16::NAN; rows * n];
        all_gather_columns(&parts, part, &mut out);
        assert_eq!(bytes(&out), bytes(&linear(&weight)), "{ranks} ranks");
    }
}

#[test]
fn a_rank_alone_has_only_its_own() {
    let mut bench = Bench::default();
    let x = bench.input("x", &[2, 2], words(&[1, 0x7fc1, 3, 4]));
    let alone = AllGatherColumns {
        x,
        out: bench.output("out", &[2, 2]),
    };
    let of_three = AllGatherColumns {
        x,
        out: bench.output("wide", &[2, 6]),
    };
    bench.run(alone.clone()).expect("one rank");
    assert_eq!(
        bytes(bench.get(alone.out)),
        bytes(&words(&[1, 0x7fc1, 3, 4]))
    );
    bench.check(of_three.clone()).expect("good shapes");
    assert_refused(
        bench.run(of_three),
        &["all_gather_columns", "ranks is 3", "1 where"],
    );
}

#[test]
fn shapes_are_refused() {
    let check = |x: [usize; 2], out: [usize; 2], fragments: &[&str]| {
        let mut bench = Bench::default();
        let op = AllGatherColumns {
            x: bench.output("x", &x),
            out: bench.output("out", &out),
        };
        assert_refused(bench.check(op), fragments);
    };
    check(
        [3, 0],
        [3, 6],
        &["all_gather_columns", "buffer x", "a divisor of 6"],
    );
    check([3, 4], [3, 6], &["buffer x", "a divisor of 6"]);
    check([3, 12], [3, 6], &["buffer x", "a divisor of 6"]);
    check([2, 3], [3, 6], &["buffer x", "[3, 3]"]);
}
