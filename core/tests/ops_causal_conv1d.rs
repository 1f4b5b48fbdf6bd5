//! Causal convolution. Cases 18, 19 and 20 of the field's faults for its state.

mod common;

use common::schedule::{Chunk, StateStep, assert_any_schedule_equals_alone};
use common::{Bench, Random, assert_close, assert_refused, assert_same_bits, b, bs, bytes, ranges};
use layerlet_core::NONE;
use layerlet_core::launch::{LaunchError, Operation, Traffic};
use layerlet_core::numerics::{bf16, round_bf16, silu};
use layerlet_core::ops::CausalConv1d;
use proptest::prelude::*;

/// Channels, taps, and their weights.
struct Layer {
    channels: usize,
    width: usize,
    weight: Vec<f32>,
}

impl Layer {
    fn random(channels: usize, width: usize, random: &mut Random) -> Layer {
        Layer {
            channels,
            width,
            weight: random.f32s(channels * width, 1.0),
        }
    }

    fn slot_len(&self) -> usize {
        (self.width - 1) * self.channels
    }

    fn op(&self, bench: &mut Bench, step: &StateStep, x: &[bf16], state: &[bf16]) -> CausalConv1d {
        let (rows, channels) = (step.rows, self.channels);
        let slots = state.len().checked_div(self.slot_len()).unwrap_or(5);
        CausalConv1d {
            x: bench.input("x", &[rows, channels], x.to_vec()),
            weight: bench.input("weight", &[channels, self.width], self.weight.clone()),
            seq_rows: bench.input("seq_rows", &[step.seq_rows.len()], step.seq_rows.clone()),
            state_read: bench.input(
                "state_read",
                &[step.state_read.len()],
                step.state_read.clone(),
            ),
            state_write: bench.input("state_write", &[rows], step.state_write.clone()),
            state: bench.input("state", &[slots, self.width - 1, channels], state.to_vec()),
            out: bench.output("out", &[rows, channels]),
        }
    }

    fn run(
        &self,
        step: &StateStep,
        x: &[bf16],
        state: &mut Vec<bf16>,
    ) -> Result<Vec<bf16>, LaunchError> {
        let mut bench = Bench::default();
        let op = self.op(&mut bench, step, x, state);
        let result = bench.run(op.clone());
        *state = bench.get(op.state).to_vec();
        result.map(|()| bench.get(op.out).to_vec())
    }
}

#[test]
fn by_hand() {
    // One channel, taps 1, 10, 100: where the sum is above 100 SiLU is the identity.
    let layer = Layer {
        channels: 1,
        width: 3,
        weight: vec![1.0, 10.0, 100.0],
    };
    let mut state = bs(&[5.0, 7.0, f32::NAN, f32::NAN]);
    let step = StateStep::build(
        vec![Chunk {
            sequence: 0,
            rows: 0..3,
        }],
        &[0],
        &[1],
        0,
        0,
    );
    let out = layer
        .run(&step, &bs(&[1.0, 2.0, 3.0]), &mut state)
        .expect("good data");
    assert_same_bits(&out, &bs(&[175.0, 217.0, 321.0]), "out");
    assert_same_bits(&state, &bs(&[5.0, 7.0, 2.0, 3.0]), "state");
}

#[test]
fn a_fresh_sequence_reads_zeros_and_a_width_of_one_has_no_state() {
    let layer = Layer {
        channels: 2,
        width: 1,
        weight: vec![1.0, -2.0],
    };
    let out = layer.run(
        &StateStep::whole(2),
        &bs(&[200.0, 1.0, 300.0, -100.0]),
        &mut vec![],
    );
    let expect = [200.0, silu(-2.0), 300.0, 200.0];
    assert_same_bits(&out.expect("good data"), &bs(&expect), "width 1");
}

/// Rounded once, after SiLU; on this data rounding before it as well (transformers) differs.
#[test]
fn rounds_once_and_adds_left_to_right() {
    let (rows, width) = (40, 4);
    let random = &mut Random::new(14);
    let layer = Layer::random(30, width, random);
    let x = random.bf16s(rows * layer.channels, 2.0);
    let mut state = vec![bf16::ZERO; layer.slot_len()];
    let out = layer
        .run(&StateStep::whole(rows), &x, &mut state)
        .expect("good data");
    let (mut twice_differs, mut reversed_differs) = (0, 0);
    for t in 0..rows {
        for c in 0..layer.channels {
            let products: Vec<f32> = (0..width)
                .map(|j| {
                    let row = (t + j).checked_sub(width - 1);
                    let x = row.map_or(0.0, |row| x[row * layer.channels + c].to_f32());
                    layer.weight[c * width + j] * x
                })
                .collect();
            let sum = products.iter().fold(0.0, |sum, p| sum + p);
            let y = out[t * layer.channels + c];
            assert_eq!(
                y.to_bits(),
                round_bf16(silu(sum)).to_bits(),
                "row {t} channel {c}"
            );
            let exact: f64 = products.iter().map(|&p| f64::from(p)).sum();
            assert_close(
                y.to_f32(),
                exact / (1.0 + (-exact).exp()),
                4e-3,
                "causal_conv1d",
            );
            let twice = round_bf16(silu(round_bf16(sum).to_f32()));
            twice_differs += usize::from(twice.to_bits() != y.to_bits());
            let reversed = products.iter().rev().fold(0.0, |sum, p| sum + p);
            reversed_differs += usize::from(reversed.to_bits() != sum.to_bits());
        }
    }
    assert!(twice_differs > 0 && reversed_differs > 0);
}

/// Case 19: a 200-token prompt, split every way in two and in the shapes of the field.
#[test]
fn every_split_of_a_prompt_is_the_same() {
    let random = &mut Random::new(15);
    let layer = Layer::random(6, 4, random);
    let x = random.bf16s(200 * layer.channels, 1.0);
    let mut whole_state = vec![bf16::ZERO; layer.slot_len()];
    let whole = layer
        .run(&StateStep::whole(200), &x, &mut whole_state)
        .expect("good data");
    let halves = (1..200).map(|first| vec![first, 200 - first]);
    let shapes = [
        vec![1; 200],
        [vec![70, 30], vec![1; 100]].concat(),
        vec![64, 64, 64, 8],
    ];
    for sizes in halves.chain(shapes) {
        let mut state = vec![b(f32::NAN); layer.slot_len()];
        let mut out = Vec::new();
        for rows in ranges(&sizes) {
            let read = if rows.start == 0 { NONE } else { 0 };
            let x = &x[rows.start * layer.channels..rows.end * layer.channels];
            let step = StateStep::build(vec![Chunk { sequence: 0, rows }], &[read], &[0], 0, 0);
            out.extend(layer.run(&step, x, &mut state).expect("good data"));
        }
        assert_same_bits(&out, &whole, &format!("{sizes:?}"));
        assert_same_bits(&state, &whole_state, &format!("state after {sizes:?}"));
    }
}

/// One write slot a row, as verification uses them: each holds what a run that ends there leaves.
#[test]
fn every_row_may_keep_its_state() {
    let random = &mut Random::new(16);
    let layer = Layer::random(5, 4, random);
    let x = random.bf16s(6 * layer.channels, 1.0);
    let mut step = StateStep::whole(6);
    step.state_write = vec![4, 0, NONE, 5, 1, 2];
    let mut state = vec![b(f32::NAN); 7 * layer.slot_len()];
    layer.run(&step, &x, &mut state).expect("good data");
    for (row, &slot) in step
        .state_write
        .iter()
        .enumerate()
        .filter(|(_, slot)| **slot != NONE)
    {
        let mut alone = vec![bf16::ZERO; layer.slot_len()];
        let prefix = &x[..(row + 1) * layer.channels];
        layer
            .run(&StateStep::whole(row + 1), prefix, &mut alone)
            .expect("good data");
        let kept = &state[slot as usize * layer.slot_len()..][..layer.slot_len()];
        assert_eq!(bytes(kept), bytes(&alone), "after row {row}");
    }
    for untouched in [3, 6] {
        let slot = &state[untouched * layer.slot_len()..][..layer.slot_len()];
        assert!(slot.iter().all(|x| x.is_nan()), "slot {untouched}");
    }
}

/// What every stateful operation refuses, tried here on the convolution.
#[test]
fn refuses_bad_step_data_and_writes_nothing() {
    let random = &mut Random::new(17);
    let layer = Layer::random(2, 3, random);
    let state = random.bf16s(3 * layer.slot_len(), 1.0);
    let x = random.bf16s(4 * layer.channels, 1.0);
    let check = |seq_rows: &[u32], read: &[u32], write: &[u32], fragments: &[&str]| {
        let step = StateStep {
            chunks: Vec::new(),
            rows: 4,
            seq_rows: seq_rows.to_vec(),
            state_read: read.to_vec(),
            state_write: write.to_vec(),
        };
        let mut after = state.clone();
        let result = layer.run(&step, &x, &mut after).map(|_| ());
        if fragments.is_empty() {
            return result.expect("good data");
        }
        assert_refused(result, fragments);
        assert_same_bits(&after, &state, "a refused step leaves the state alone");
    };
    let none = NONE;
    check(&[0, 2, 4], &[0, 1], &[none, 0, none, 2], &[]);
    check(&[0, 2, 2], &[0, none], &[2, 0, none, none], &[]);
    check(
        &[0, 2, 5],
        &[0, 1],
        &[none; 4],
        &["rows of sequence 1 is 5", "2..=4"],
    );
    check(
        &[0, 3, 2],
        &[0, 1],
        &[none; 4],
        &["rows of sequence 1 is 2", "3..=4"],
    );
    check(&[0, 2, none], &[0, 1], &[none; 4], &["rows of sequence 1"]);
    check(
        &[0, 2, 4],
        &[0, 3],
        &[none; 4],
        &["read slot of sequence 1 is 3", "3 slots"],
    );
    check(
        &[0, 2, 4],
        &[0, 1],
        &[none, none, none, 3],
        &["write slot of row 3 is 3", "3 slots"],
    );
    check(
        &[0, 2, 4],
        &[0, 1],
        &[2, none, none, 2],
        &["write slot of row 3 is 2", "no other row"],
    );
    check(
        &[0, 2, 4],
        &[0, 1],
        &[none, 1, none, none],
        &["read slot of sequence 1 is 1", "no other sequence"],
    );
    check(
        &[0, 2, 3],
        &[0, 1],
        &[none, none, none, 2],
        &["write slot of row 3 is 2", "no sequence"],
    );
}

#[test]
fn refuses_shapes_by_name() {
    let layer = Layer {
        channels: 2,
        width: 3,
        weight: vec![0.0; 6],
    };
    let state = bs(&[0.0; 12]);
    let mut bench = Bench::default();
    let op = layer.op(&mut bench, &StateStep::whole(4), &bs(&[0.0; 8]), &state);
    bench.check(op.clone()).expect("good shapes");
    let four_rows = bench.input("four columns", &[3, 3, 2], bs(&[0.0; 18]));
    let wrong = CausalConv1d {
        state: four_rows,
        ..op.clone()
    };
    assert_refused(
        bench.check(wrong),
        &["causal_conv1d", "four columns", "[3, 2, 2]"],
    );
    let seq_rows = bench.input("no end", &[1], vec![0]);
    assert_refused(
        bench.check(CausalConv1d {
            seq_rows,
            ..op.clone()
        }),
        &["no end", "[2]"],
    );
    let weight = bench.input("no taps", &[2, 0], vec![]);
    assert_refused(
        bench.check(CausalConv1d { weight, ..op }),
        &["no taps", "neither of them 0"],
    );
}

#[test]
fn moves_only_the_slots_it_names() {
    let layer = Layer {
        channels: 2,
        width: 3,
        weight: vec![0.0; 6],
    };
    let mut bench = Bench::default();
    let op = layer.op(
        &mut bench,
        &StateStep::whole(4),
        &bs(&[0.0; 8]),
        &bs(&[0.0; 400]),
    );
    let (rows, indices, weight, slot) = (2 * 4 * 2 * 2, (2 + 1 + 4) * 4, 6 * 4, 4 * 2);
    let min = rows + indices + weight;
    assert_eq!(
        op.traffic(&bench.table),
        Traffic {
            min,
            max: min + slot * (1 + 4)
        }
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Cases 18 and 20: any slots, any company, any chunks, stale slots everywhere.
    #[test]
    fn any_schedule_equals_alone(
        seed: u64,
        lengths in proptest::collection::vec(1usize..40, 1..5),
        channels in 1usize..6,
        width in 2usize..6,
    ) {
        let random = &mut Random::new(seed);
        let layer = Layer::random(channels, width, random);
        let sequences: Vec<_> = lengths.iter().map(|n| random.bf16s(n * channels, 2.0)).collect();
        assert_any_schedule_equals_alone(
            &lengths, layer.slot_len(), channels, seed, b(f32::NAN),
            |step, which, state| {
                let chosen: Vec<_> = which.iter().map(|&s| sequences[s].clone()).collect();
                layer.run(step, &step.gather(&chosen, channels), state).expect("good data")
            },
        );
    }
}
