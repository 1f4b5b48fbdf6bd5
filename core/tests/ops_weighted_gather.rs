//! The weighted sum of a token's experts.

mod common;

use common::{Bench, Random, assert_refused, assert_same_bits, bs};
use layerlet_core::NONE;
use layerlet_core::launch::LaunchError;
use layerlet_core::numerics::{bf16, round_bf16};
use layerlet_core::ops::{WeightedGather, expert_prologue};

/// `y` is `[P, H]`; the other two have `k` entries for each token.
fn gather(
    y: &[bf16],
    row_of_slot: &[u32],
    weights: &[f32],
    k: usize,
) -> Result<Vec<bf16>, LaunchError> {
    let pairs = row_of_slot.len();
    let width = y.len() / pairs;
    let mut bench = Bench::default();
    let op = WeightedGather {
        y: bench.input("y", &[pairs, width], y.to_vec()),
        row_of_slot: bench.input("row_of_slot", &[pairs], row_of_slot.to_vec()),
        weights: bench.input("weights", &[pairs / k, k], weights.to_vec()),
        out: bench.output("out", &[pairs / k, width]),
    };
    bench.run(op.clone())?;
    Ok(bench.get(op.out).to_vec())
}

/// One token, one column.
#[track_caller]
fn check(y: &[f32], row_of_slot: &[u32], weights: &[f32], expect: f32) {
    let out = gather(&bs(y), row_of_slot, weights, y.len()).expect("good rows");
    assert_same_bits(
        &out,
        &bs(&[expect]),
        &format!("{y:?} {row_of_slot:?} {weights:?}"),
    );
}

#[test]
fn by_hand() {
    check(&[3.0, 5.0], &[0, 1], &[0.25, 0.5], 3.25);
    check(&[3.0, 5.0], &[1, 0], &[0.25, 0.5], 2.75);
    check(&[3.0, 5.0], &[1, 1], &[0.25, 0.5], 3.75);
    // A weight of 0 is computed as any other (case 12); a pair left out is not computed at all.
    check(&[3.0, f32::INFINITY], &[0, 1], &[1.0, 0.0], f32::NAN);
    check(&[3.0, 7.0], &[0, 1], &[1.0, 0.0], 3.0);
    check(&[3.0, f32::NAN], &[0, NONE], &[1.0, 1.0], 3.0);
    check(&[f32::NAN, f32::NAN], &[NONE, NONE], &[1.0, f32::NAN], 0.0);
    // The sum starts at +0.
    check(&[-0.0, 1.0], &[0, NONE], &[1.0, 1.0], 0.0);
}

#[test]
fn slots_are_added_left_to_right() {
    let big = 16_777_216.0;
    check(&[big, 1.0, -big], &[0, 1, 2], &[1.0; 3], 0.0);
    check(&[big, 1.0, -big], &[0, 2, 1], &[1.0; 3], 1.0);
    // In ascending expert row, as transformers adds, the second would be 0 as well.
    check(&[1.0, big, -big], &[1, 0, 2], &[1.0; 3], 0.0);
}

/// A fused multiply-add would leave 2^-30; rounding each weighted row to bf16 would leave 2^-23.
#[test]
fn products_and_sums_round_apart() {
    let last = f32::EPSILON;
    let y = 1.0 + 1.0 / 128.0;
    check(&[1.0, y], &[0, 1], &[-(y + last), 1.0 + last], 0.0);
    check(&[1.0, y], &[0, 1], &[-y, 1.0 + last], last);
}

/// Case 9: the map made by the prologue, 2 to 16 tokens, skewed; read transposed it must show.
#[test]
fn rows_find_their_tokens() {
    for tokens in 2..=16 {
        let (k, experts, width) = (3, 5, 7);
        let random = &mut Random::new(tokens as u64);
        let pairs = tokens * k;
        let skewed = |_| (random.below(experts) * random.below(2)) as u32;
        let ids: Vec<u32> = (0..pairs).map(skewed).collect();
        let mut offsets = vec![0; experts + 1];
        let (mut slot_of_row, mut row_of_slot) = (vec![0; pairs], vec![0; pairs]);
        expert_prologue(&ids, &mut offsets, &mut slot_of_row, &mut row_of_slot).expect("good ids");
        let by_slot = random.bf16s(pairs * width, 2.0);
        let weights = random.f32s(pairs, 1.0);
        let y: Vec<bf16> = slot_of_row
            .iter()
            .flat_map(|&slot| &by_slot[slot as usize * width..][..width])
            .copied()
            .collect();
        let expect: Vec<bf16> = (0..tokens * width)
            .map(|i| {
                let (t, h) = (i / width, i % width);
                let term =
                    |r: usize| weights[t * k + r] * by_slot[(t * k + r) * width + h].to_f32();
                round_bf16((0..k).fold(0.0, |sum, r| sum + term(r)))
            })
            .collect();
        let out = gather(&y, &row_of_slot, &weights, k).expect("good rows");
        assert_same_bits(&out, &expect, &format!("{tokens} tokens"));
        let transposed: Vec<u32> = (0..pairs)
            .map(|slot| row_of_slot[slot % k * tokens + slot / k])
            .collect();
        assert_ne!(
            gather(&y, &transposed, &weights, k).expect("good rows"),
            expect
        );
        assert_ne!(
            gather(&y, &slot_of_row, &weights, k).expect("good rows"),
            expect
        );
    }
}

/// Case 11.
#[test]
fn row_0_is_the_same_beside_any_number_of_rows() {
    let (k, width) = (4, 33);
    let random = &mut Random::new(9);
    let y = random.bf16s(130 * k * width, 1.0);
    let weights = random.f32s(130 * k, 1.0);
    let alone = gather(&y[..k * width], &[2, 0, 3, 1], &weights[..k], k).expect("good rows");
    for rows in 1..=130 {
        let mut row_of_slot = random.permutation(rows * k);
        row_of_slot[..k].copy_from_slice(&[2, 0, 3, 1]);
        let y = &y[..rows * k * width];
        let out = gather(y, &row_of_slot, &weights[..rows * k], k).expect("good rows");
        assert_same_bits(&out[..width], &alone, &format!("{rows} rows"));
    }
}

#[test]
fn a_row_that_does_not_exist_is_refused() {
    for row in [4, 5, NONE - 1] {
        let refused = gather(&bs(&[1.0; 4]), &[0, 1, row, 2], &[1.0; 4], 2);
        assert_refused(
            refused.map(drop),
            &["weighted_gather", &row.to_string(), "below 4"],
        );
    }
}

#[test]
fn shapes_are_refused() {
    let check =
        |y: [usize; 2], map: usize, weights: [usize; 2], out: [usize; 2], fragments: &[&str]| {
            let mut bench = Bench::default();
            let op = WeightedGather {
                y: bench.output("y", &y),
                row_of_slot: bench.output("row_of_slot", &[map]),
                weights: bench.output("weights", &weights),
                out: bench.output("out", &out),
            };
            assert_refused(bench.check(op), fragments);
        };
    check(
        [6, 0],
        6,
        [3, 2],
        [3, 0],
        &["weighted_gather", "buffer y", "H not 0"],
    );
    check([0, 5], 0, [3, 0], [3, 5], &["buffer weights", "k not 0"]);
    check([5, 5], 6, [3, 2], [3, 5], &["buffer y", "[6, 5]"]);
    check([6, 5], 5, [3, 2], [3, 5], &["buffer row_of_slot", "[6]"]);
    check([6, 5], 6, [3, 2], [6, 5], &["buffer out", "[3, 5]"]);
}
