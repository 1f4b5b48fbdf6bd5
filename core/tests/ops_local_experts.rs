//! A rank's own part of the grouped pairs.

mod common;

use common::{Bench, Random, assert_refused};
use layerlet_core::NONE;
use layerlet_core::launch::LaunchError;
use layerlet_core::ops::{LocalExperts, expert_prologue};
use proptest::prelude::*;

/// `local_offsets`, `local_slot_of_row` of a rank that holds `count` experts from `first` on.
fn local(
    offsets: &[u32],
    slots: &[u32],
    first: usize,
    count: usize,
) -> Result<[Vec<u32>; 2], LaunchError> {
    let mut bench = Bench::default();
    let op = LocalExperts {
        offsets: bench.input("offsets", &[offsets.len()], offsets.to_vec()),
        slot_of_row: bench.input("slot_of_row", &[slots.len()], slots.to_vec()),
        local_offsets: bench.output("local_offsets", &[count + 1]),
        local_slot_of_row: bench.output("local_slot_of_row", &[slots.len()]),
        first,
    };
    bench.run(op.clone())?;
    Ok([op.local_offsets, op.local_slot_of_row].map(|buf| bench.get(buf).to_vec()))
}

#[test]
fn by_hand() {
    let (offsets, slots) = ([0, 2, 3, 3, 6], [1, 4, 0, 5, 2, 3, NONE, NONE]);
    let check = |first, count, expect: [&[u32]; 2]| {
        let found = local(&offsets, &slots, first, count).expect("good routes");
        assert_eq!(
            found,
            expect.map(<[u32]>::to_vec),
            "{count} experts from {first}"
        );
    };
    const N: u32 = NONE;
    check(0, 4, [&offsets, &slots]);
    check(0, 2, [&[0, 2, 3], &[1, 4, 0, N, N, N, N, N]]);
    check(2, 2, [&[0, 0, 3], &[5, 2, 3, N, N, N, N, N]]);
    check(1, 1, [&[0, 1], &[0, N, N, N, N, N, N, N]]);
    // A rank without any row.
    check(2, 1, [&[0, 0], &[N; 8]]);
    // No tokens at all.
    let nothing = local(&[0, 0, 0], &[], 1, 1).expect("an empty step");
    assert_eq!(nothing, [vec![0, 0], vec![]]);
}

#[test]
fn offsets_that_lead_nowhere_are_refused() {
    let check = |offsets: &[u32], found: &str| {
        let refused = local(offsets, &[0, 1, 2, NONE], 1, 2).map(drop);
        assert_refused(refused, &["local_experts", "an offset", found, "at most 4"]);
    };
    check(&[0, 3, 2, 3], "is 2");
    check(&[0, 2, 3, 1], "is 1");
    check(&[0, 1, 2, 5], "is 5");
    check(&[0, 5, 5, 5], "is 5");
    // What the rank does not hold is not its business.
    local(&[9, 1, 2, 2], &[0, 1, 2, NONE], 1, 2).expect("own offsets are good");
}

#[test]
fn shapes_are_refused() {
    let check = |local_offsets: &[usize], slots: usize, first: usize, fragments: &[&str]| {
        let mut bench = Bench::default();
        let op = LocalExperts {
            offsets: bench.output("offsets", &[7]),
            slot_of_row: bench.output("slot_of_row", &[4]),
            local_offsets: bench.output("local_offsets", local_offsets),
            local_slot_of_row: bench.output("local_slot_of_row", &[slots]),
            first,
        };
        assert_refused(bench.check(op), fragments);
    };
    check(&[1], 4, 0, &["local_experts", "buffer local_offsets"]);
    check(&[8], 4, 0, &["buffer local_offsets", "at most the [7]"]);
    check(&[3, 1], 4, 0, &["buffer local_offsets", "rank 1"]);
    check(&[3], 5, 0, &["buffer local_slot_of_row", "[4]"]);
    check(
        &[3],
        4,
        5,
        &["first is 5", "at most 4", "holds 2 of 6 experts"],
    );
    check(&[3], 4, usize::MAX, &["first is", "at most 4"]);
}

proptest! {
    /// Every pair stands on exactly one rank, with its expert there, and in its order.
    #[test]
    fn ranks_share_out_the_pairs(tokens in 0usize..16, k in 1usize..5, ranks in 1usize..5, each in 1usize..4, seed in any::<u64>()) {
        let (random, experts, pairs) = (&mut Random::new(seed), ranks * each, tokens * k);
        let hot = random.below(experts) as u32;
        let ids: Vec<u32> = (0..pairs)
            .map(|_| match random.below(4) {
                0 => NONE,
                1 => hot,
                _ => random.below(experts) as u32,
            })
            .collect();
        let (mut offsets, mut slots, mut rows) = (vec![0; experts + 1], vec![0; pairs], vec![0; pairs]);
        expert_prologue(&ids, &mut offsets, &mut slots, &mut rows).expect("good ids");
        let mut joined = Vec::new();
        for rank in 0..ranks {
            let [own_offsets, own_slots] = local(&offsets, &slots, rank * each, each).expect("good routes");
            prop_assert_eq!(own_offsets[0], 0);
            for expert in 0..each {
                for row in own_offsets[expert]..own_offsets[expert + 1] {
                    let slot = own_slots[row as usize];
                    prop_assert_eq!(ids[slot as usize] as usize, rank * each + expert);
                    joined.push(slot);
                }
            }
            let rest = &own_slots[own_offsets[each] as usize..];
            prop_assert!(rest.iter().all(|&slot| slot == NONE));
        }
        joined.resize(pairs, NONE);
        prop_assert_eq!(joined, slots);
    }
}
