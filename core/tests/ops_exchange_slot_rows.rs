//! Bringing together the expert rows of ranks.

mod common;

use common::{Bench, Random, assert_refused, bytes};
use layerlet_core::NONE;
use layerlet_core::launch::Operation;
use layerlet_core::numerics::bf16;
use layerlet_core::ops::*;
use proptest::prelude::*;

fn words(w: &[u16]) -> Vec<bf16> {
    w.iter().copied().map(bf16::from_bits).collect()
}

fn exchange(ranks: &[Vec<bf16>], offsets: &[u32], width: usize) -> Result<Vec<bf16>, u32> {
    let ranks: Vec<&[bf16]> = ranks.iter().map(Vec::as_slice).collect();
    let mut out = words(&vec![0xaaaa; ranks[0].len()]);
    exchange_slot_rows(&ranks, offsets, width, &mut out).map(|()| out)
}

#[test]
fn rows_come_from_the_rank_of_their_expert() {
    let check = |ranks: &[&[u16]], offsets: &[u32], width: usize, expect: &[u16]| {
        let ranks: Vec<Vec<bf16>> = ranks.iter().map(|r| words(r)).collect();
        let out = exchange(&ranks, offsets, width).expect("good routes");
        assert_eq!(bytes(&out), bytes(&words(expect)), "{offsets:?}");
    };
    // What lies past a rank's rows is nobody's, a NaN's bits and a zero's sign are kept.
    let (a, b) = (
        &[0x7fc1, 2, 3, 4, 90, 91, 92, 93],
        &[0x8000, 12, 93, 94, 95, 96, 97, 98],
    );
    check(
        &[a, b],
        &[0, 1, 2, 2, 3],
        2,
        &[0x7fc1, 2, 3, 4, 0x8000, 12, 0, 0],
    );
    check(
        &[a, b],
        &[0, 0, 0, 1, 4],
        2,
        &[0x8000, 12, 93, 94, 95, 96, 97, 98],
    );
    check(
        &[a, b],
        &[0, 1, 4, 4, 4],
        2,
        &[0x7fc1, 2, 3, 4, 90, 91, 92, 93],
    );
    check(&[a, b], &[0; 5], 2, &[0; 8]);
    check(
        &[&[1, 2, 3], &[11, 12, 13], &[21, 22, 23]],
        &[0, 1, 1, 2],
        1,
        &[1, 21, 0],
    );
    check(&[a], &[0, 3], 2, &[0x7fc1, 2, 3, 4, 90, 91, 0, 0]);
    check(&[&[], &[]], &[0, 0, 0], 2, &[]);
}

#[test]
fn a_rank_alone_has_only_its_own() {
    let mut bench = Bench::default();
    let alone = ExchangeSlotRows {
        x: bench.input("x", &[3, 1], words(&[0x7fc1, 2, 3])),
        offsets: bench.input("offsets", &[5], vec![0, 1, 1, 1, 2]),
        out: bench.output("out", &[3, 1]),
        ranks: 1,
    };
    bench.run(alone.clone()).expect("one rank");
    assert_eq!(bytes(bench.get(alone.out)), bytes(&words(&[0x7fc1, 2, 0])));
    let of_two = ExchangeSlotRows { ranks: 2, ..alone };
    bench.check(of_two.clone()).expect("good shapes");
    assert_refused(
        bench.run(of_two),
        &["exchange_slot_rows", "ranks is 2", "1 where"],
    );
}

#[test]
fn offsets_that_lead_nowhere_are_refused() {
    let (a, b) = (words(&[1, 2, 3, 4]), words(&[5, 6, 7, 8]));
    assert_eq!(exchange(&[a.clone(), b.clone()], &[0, 2, 1], 2), Err(1));
    assert_eq!(exchange(&[a, b], &[0, 2, 3], 2), Err(3));
    let mut bench = Bench::default();
    let op = ExchangeSlotRows {
        x: bench.input("x", &[2, 1], words(&[1, 2])),
        offsets: bench.input("offsets", &[2], vec![0, 3]),
        out: bench.output("out", &[2, 1]),
        ranks: 1,
    };
    let fragments = ["exchange_slot_rows", "an offset is 3", "at most 2"];
    assert_refused(bench.run(op), &fragments);
}

#[test]
fn shapes_are_refused() {
    let check =
        |x: [usize; 2], offsets: usize, out: [usize; 2], ranks: usize, fragments: &[&str]| {
            let mut bench = Bench::default();
            let op = ExchangeSlotRows {
                x: bench.output("x", &x),
                offsets: bench.output("offsets", &[offsets]),
                out: bench.output("out", &out),
                ranks,
            };
            assert_refused(bench.check(op), fragments);
        };
    check(
        [3, 0],
        5,
        [3, 0],
        2,
        &["exchange_slot_rows", "buffer out", "H not 0"],
    );
    check([2, 2], 5, [3, 2], 2, &["buffer x", "[3, 2]"]);
    check([3, 2], 1, [3, 2], 1, &["buffer offsets", "[E + 1]"]);
    check(
        [3, 2],
        5,
        [3, 2],
        3,
        &["ranks is 3", "a divisor of the 4 experts"],
    );
    check([3, 2], 5, [3, 2], 0, &["ranks is 0", "a divisor"]);
}

#[test]
fn traffic_counts_the_rows_that_may_be_sent() {
    let mut bench = Bench::default();
    let op = ExchangeSlotRows {
        x: bench.output("x", &[3, 2]),
        offsets: bench.output("offsets", &[5]),
        out: bench.output("out", &[3, 2]),
        ranks: 2,
    };
    let traffic = op.traffic(&bench.table);
    assert_eq!((traffic.min, traffic.max), (20 + 12, 20 + 24));
}

proptest! {
    /// Group, compute apart, exchange: the bytes of one device, wherever the routes lead.
    #[test]
    fn experts_apart_are_experts_together(
        tokens in 0usize..9, k in 1usize..4, ranks in 1usize..5, each in 1usize..4, seed in any::<u64>(),
    ) {
        let (random, experts, pairs) = (&mut Random::new(seed), ranks * each, tokens * k);
        let (width, n) = (5, 3);
        let hot = random.below(experts) as u32;
        let ids: Vec<u32> = (0..pairs)
            .map(|_| match random.below(4) {
                0 => NONE,
                1 => random.below(experts) as u32,
                _ => hot,
            })
            .collect();
        let (x, weight) = (random.bf16s(tokens * width, 1.0), random.bf16s(experts * n * width, 1.0));
        let (mut offsets, mut slots, mut rows) = (vec![0; experts + 1], vec![0; pairs], vec![0; pairs]);
        expert_prologue(&ids, &mut offsets, &mut slots, &mut rows).expect("good ids");
        let linear = |offsets: &[u32], slots: &[u32], weight: &[bf16]| {
            let mut bench = Bench::default();
            let experts = offsets.len() - 1;
            let op = GroupedLinearBf16 {
                x: bench.input("x", &[tokens, width], x.clone()),
                weight: bench.input("weight", &[experts, n, width], weight.to_vec()),
                offsets: bench.input("offsets", &[experts + 1], offsets.to_vec()),
                slot_of_row: bench.input("slot_of_row", &[pairs], slots.to_vec()),
                out: bench.output("out", &[pairs, n]),
                source: RowSource::Token { k },
            };
            bench.run(op.clone()).expect("good routes");
            bench.get(op.out).to_vec()
        };
        let apart: Vec<Vec<bf16>> = (0..ranks)
            .map(|rank| {
                let (mut own, mut own_slots) = (vec![0; each + 1], vec![0; pairs]);
                local_experts(&offsets[rank * each..][..each + 1], &slots, &mut own, &mut own_slots)
                    .expect("good routes");
                linear(&own, &own_slots, &weight[rank * each * n * width..][..each * n * width])
            })
            .collect();
        let together = linear(&offsets, &slots, &weight);
        let joined = exchange(&apart, &offsets, n).expect("good routes");
        prop_assert_eq!(bytes(&joined), bytes(&together));
    }
}
