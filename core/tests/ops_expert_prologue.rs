//! Grouping pairs by expert.

mod common;

use common::{Bench, Random, assert_refused};
use layerlet_core::NONE;
use layerlet_core::launch::LaunchError;
use layerlet_core::ops::ExpertPrologue;
use proptest::prelude::*;

/// `offsets`, `slot_of_row`, `row_of_slot`.
type Groups = [Vec<u32>; 3];

fn group(ids: &[u32], k: usize, experts: usize) -> Result<Groups, LaunchError> {
    let pairs = ids.len();
    let mut bench = Bench::default();
    let op = ExpertPrologue {
        ids: bench.input("ids", &[pairs / k, k], ids.to_vec()),
        offsets: bench.output("offsets", &[experts + 1]),
        slot_of_row: bench.output("slot_of_row", &[pairs]),
        row_of_slot: bench.output("row_of_slot", &[pairs]),
    };
    bench.run(op.clone())?;
    Ok([op.offsets, op.slot_of_row, op.row_of_slot].map(|buf| bench.get(buf).to_vec()))
}

/// The maps by another road: sort the slots by expert, keeping their order.
fn sorted(ids: &[u32], experts: usize) -> Groups {
    let mut slots: Vec<u32> = (0..ids.len() as u32)
        .filter(|&s| ids[s as usize] != NONE)
        .collect();
    slots.sort_by_key(|&slot| ids[slot as usize]);
    let mut row_of_slot = vec![NONE; ids.len()];
    for (row, &slot) in slots.iter().enumerate() {
        row_of_slot[slot as usize] = row as u32;
    }
    let below = |e: usize| {
        ids.iter()
            .filter(|&&id| id != NONE && (id as usize) < e)
            .count() as u32
    };
    slots.resize(ids.len(), NONE);
    [(0..=experts).map(below).collect(), slots, row_of_slot]
}

#[test]
fn by_hand() {
    let check = |ids: &[u32], k, experts, expect: [&[u32]; 3]| {
        let found = group(ids, k, experts).expect("good ids");
        assert_eq!(found, expect.map(<[u32]>::to_vec), "{ids:?}");
    };
    // Read with rows and columns exchanged, each of these maps would be another one (case 9).
    check(
        &[1, 0, 1, 2],
        2,
        3,
        [&[0, 1, 3, 4], &[1, 0, 2, 3], &[1, 0, 2, 3]],
    );
    check(
        &[2, 1, 0, 2, 1, 0],
        3,
        4,
        [&[0, 2, 4, 6, 6], &[2, 5, 1, 4, 0, 3], &[4, 2, 0, 5, 3, 1]],
    );
    // An expert twice in one token's route (case 12).
    check(&[3, 3], 2, 4, [&[0, 0, 0, 0, 2], &[0, 1], &[0, 1]]);
    // An inert row in the middle.
    check(
        &[1, 0, NONE, NONE, 0, 1],
        2,
        2,
        [
            &[0, 2, 4],
            &[1, 4, 0, 5, NONE, NONE],
            &[2, 0, NONE, NONE, 1, 3],
        ],
    );
    // No tokens at all (case 8).
    check(&[], 2, 3, [&[0, 0, 0, 0], &[], &[]]);
    check(&[NONE; 4], 2, 1, [&[0, 0], &[NONE; 4], &[NONE; 4]]);
}

/// Case 8: one expert takes every token, 255 take none.
#[test]
fn one_hot_expert() {
    for hot in [0u32, 100, 255] {
        let [offsets, slot_of_row, row_of_slot] = group(&[hot; 40], 1, 256).expect("good ids");
        let expect: Vec<u32> = (0..=256).map(|e| if e > hot { 40 } else { 0 }).collect();
        assert_eq!(offsets, expect);
        assert!(
            slot_of_row
                .iter()
                .chain(&row_of_slot)
                .eq((0..40u32).collect::<Vec<_>>().repeat(2).iter())
        );
    }
}

/// Case 12: an id out of range.
#[test]
fn an_id_that_is_no_expert_is_refused() {
    for id in [5, 6, 256, NONE - 1] {
        let refused = group(&[0, 4, id, NONE], 2, 5);
        assert!(
            matches!(&refused, Err(LaunchError::StepData { found, .. }) if *found == id.into())
        );
        assert_refused(
            refused.map(drop),
            &["expert_prologue", &id.to_string(), "below 5"],
        );
    }
}

#[test]
fn shapes_are_refused() {
    let check = |offsets: &[usize], slot_of_row: usize, row_of_slot: usize, fragments: &[&str]| {
        let mut bench = Bench::default();
        let op = ExpertPrologue {
            ids: bench.output("ids", &[3, 2]),
            offsets: bench.output("offsets", offsets),
            slot_of_row: bench.output("slot_of_row", &[slot_of_row]),
            row_of_slot: bench.output("row_of_slot", &[row_of_slot]),
        };
        assert_refused(bench.check(op), fragments);
    };
    check(
        &[1],
        6,
        6,
        &["expert_prologue", "buffer offsets", "[E + 1]"],
    );
    check(&[2, 2], 6, 6, &["buffer offsets", "rank 1"]);
    check(&[4], 5, 6, &["buffer slot_of_row", "[6]"]);
    check(&[4], 6, 3, &["buffer row_of_slot", "[6]"]);
}

/// Routes as routers make them, and as they should not: skewed, with repeats, with inert rows.
fn routes() -> impl Strategy<Value = (Vec<u32>, usize, usize)> {
    (0usize..=16, 1usize..=8, 1usize..=20, any::<u64>()).prop_map(|(tokens, k, experts, seed)| {
        let random = &mut Random::new(seed);
        let hot = random.below(experts) as u32;
        let ids = (0..tokens).flat_map(|_| {
            let kind = random.below(4);
            let row: Vec<u32> = (0..k)
                .map(|_| match kind {
                    0 => NONE,
                    1 => hot,
                    _ => random.below(experts) as u32,
                })
                .collect();
            row
        });
        (ids.collect(), k, experts)
    })
}

proptest! {
    /// Case 9: 2 to 16 tokens with skewed routes.
    #[test]
    fn groups_are_a_stable_sort((ids, k, experts) in routes()) {
        let found = group(&ids, k, experts).expect("good ids");
        prop_assert_eq!(&found, &sorted(&ids, experts));
        let [offsets, slot_of_row, row_of_slot] = found;
        for expert in 0..experts {
            for row in offsets[expert]..offsets[expert + 1] {
                let slot = slot_of_row[row as usize] as usize;
                prop_assert_eq!(ids[slot] as usize, expert);
                prop_assert_eq!(row_of_slot[slot], row);
            }
        }
    }
}
