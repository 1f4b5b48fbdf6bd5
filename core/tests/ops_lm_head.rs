//! Logits of the rows that want them.

mod common;

use common::{Bench, Random, assert_refused, assert_same_bits, bs};
use layerlet_core::NONE;
use layerlet_core::launch::{LaunchError, Operation, Traffic};
use layerlet_core::numerics::{bf16, lane_dot_bf16, round_bf16};
use layerlet_core::ops::LmHead;

fn lm_head(
    x: &[bf16],
    rows: &[u32],
    weight: &[bf16],
    width: usize,
) -> Result<Vec<bf16>, LaunchError> {
    let vocab = weight.len() / width;
    let mut bench = Bench::default();
    let op = LmHead {
        x: bench.input("x", &[x.len() / width, width], x.to_vec()),
        out_rows: bench.input("out_rows", &[rows.len()], rows.to_vec()),
        weight: bench.input("weight", &[vocab, width], weight.to_vec()),
        logits: bench.output("logits", &[rows.len(), vocab]),
    };
    bench.run(op.clone())?;
    Ok(bench.get(op.logits).to_vec())
}

#[test]
fn by_hand() {
    let x = bs(&[1.0, 2.0, 3.0, 4.0]);
    let weight = bs(&[1.0, 0.0, 0.0, 1.0, 10.0, -1.0]);
    let out = lm_head(&x, &[1, NONE, 0, 1], &weight, 2).expect("good rows");
    let expect = [3.0, 4.0, 26.0, 0.0, 0.0, 0.0, 1.0, 2.0, 8.0, 3.0, 4.0, 26.0];
    assert_same_bits(&out, &bs(&expect), "logits");
    assert_eq!(lm_head(&x, &[], &weight, 2).expect("no rows"), []);
}

/// Case 11, and rows that are not asked for may hold anything.
#[test]
fn a_row_depends_on_nothing_else() {
    let (width, vocab) = (70, 13);
    let random = &mut Random::new(5);
    let weight = random.bf16s(vocab * width, 1.0);
    let x = random.bf16s(130 * width, 1.0);
    let dot = |row: usize, v: usize| {
        round_bf16(lane_dot_bf16(
            &x[row * width..][..width],
            &weight[v * width..][..width],
        ))
    };
    for rows in 1..=130 {
        let mut picks: Vec<u32> = random.permutation(130)[..rows].to_vec();
        picks[0] = 7;
        let mut hidden = vec![bf16::NAN; 130 * width];
        for &row in &picks {
            let span = row as usize * width..(row as usize + 1) * width;
            hidden[span.clone()].copy_from_slice(&x[span]);
        }
        let out = lm_head(&hidden, &picks, &weight, width).expect("good rows");
        let expect: Vec<bf16> = picks
            .iter()
            .flat_map(|&row| (0..vocab).map(move |v| (row, v)))
            .map(|(row, v)| dot(row as usize, v))
            .collect();
        assert_same_bits(&out, &expect, &format!("{rows} rows"));
    }
}

#[test]
fn a_row_that_does_not_exist_is_refused() {
    for row in [2, NONE - 1] {
        let refused = lm_head(&bs(&[1.0; 4]), &[0, row], &bs(&[1.0; 6]), 2);
        assert_refused(
            refused.map(drop),
            &["lm_head", "a row", &row.to_string(), "below 2"],
        );
    }
}

#[test]
fn shapes_are_refused() {
    let check =
        |x: [usize; 2], out_rows, weight: [usize; 2], logits: [usize; 2], fragments: &[&str]| {
            let mut bench = Bench::default();
            let op = LmHead {
                x: bench.output("x", &x),
                out_rows: bench.output("out_rows", &[out_rows]),
                weight: bench.output("weight", &weight),
                logits: bench.output("logits", &logits),
            };
            assert_refused(bench.check(op), fragments);
        };
    check(
        [3, 0],
        2,
        [9, 0],
        [2, 9],
        &["lm_head", "buffer weight", "neither"],
    );
    check(
        [3, 4],
        2,
        [0, 4],
        [2, 0],
        &["lm_head", "buffer weight", "neither"],
    );
    check([3, 4], 2, [9, 5], [2, 9], &["buffer x", "[3, 5]"]);
    check([3, 5], 3, [9, 5], [2, 9], &["buffer logits", "[3, 9]"]);
    check([3, 5], 2, [9, 5], [2, 5], &["buffer logits", "[2, 9]"]);
}

#[test]
fn traffic_counts_the_rows_it_reads() {
    let mut bench = Bench::default();
    let op = LmHead {
        x: bench.output("x", &[8192, 16]),
        out_rows: bench.output("out_rows", &[3]),
        weight: bench.output("weight", &[50, 16]),
        logits: bench.output("logits", &[3, 50]),
    };
    let rest = 3 * 4 + 50 * 32 + 3 * 100;
    let expect = Traffic {
        min: rest + 32,
        max: rest + 3 * 32,
    };
    assert_eq!(op.traffic(&bench.table), expect);
}
