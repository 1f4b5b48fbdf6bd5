//! The gated delta rule. Case 17 (head ratios) and cases 18, 19, 20 (its state) of the field's faults.

mod common;

use common::schedule::{Chunk, StateStep, assert_any_schedule_equals_alone};
use common::{Bench, Random, assert_close, assert_refused, assert_same_bits, b, bs, bytes, ranges};
use layerlet_core::NONE;
use layerlet_core::launch::{LaunchError, Operation, Traffic};
use layerlet_core::numerics::{bf16, lane_sum, rsqrt, tree_sum};
use layerlet_core::ops::{DeltaRuleShape, GatedDeltaRule, gated_delta_rule_row, l2_norm};
use proptest::prelude::*;

const EPS: f32 = 1e-6;

/// Rows of a sequence: qkv, decay and beta.
#[derive(Clone, Default)]
struct Rows {
    qkv: Vec<bf16>,
    decay: Vec<f32>,
    beta: Vec<f32>,
}

impl Rows {
    fn random(rows: usize, shape: &DeltaRuleShape, random: &mut Random) -> Rows {
        let gates = rows * shape.value_heads;
        Rows {
            qkv: random.bf16s(rows * shape.columns(), 2.0),
            decay: (0..gates).map(|_| 0.5 + 0.5 * random.f32(1.0)).collect(),
            beta: (0..gates).map(|_| 0.5 + 0.5 * random.f32(1.0)).collect(),
        }
    }

    fn cut(&self, rows: std::ops::Range<usize>, shape: &DeltaRuleShape) -> Rows {
        let of = |width: usize| rows.start * width..rows.end * width;
        Rows {
            qkv: self.qkv[of(shape.columns())].to_vec(),
            decay: self.decay[of(shape.value_heads)].to_vec(),
            beta: self.beta[of(shape.value_heads)].to_vec(),
        }
    }
}

fn slot_len(shape: &DeltaRuleShape) -> usize {
    shape.value_heads * shape.key_dim * shape.value_dim
}

fn op(
    bench: &mut Bench,
    shape: &DeltaRuleShape,
    step: &StateStep,
    rows: &Rows,
    state: &[f32],
) -> GatedDeltaRule {
    let &DeltaRuleShape {
        key_heads,
        value_heads,
        key_dim,
        value_dim,
    } = shape;
    let slots = state.len() / slot_len(shape);
    GatedDeltaRule {
        qkv: bench.input("qkv", &[step.rows, shape.columns()], rows.qkv.clone()),
        decay: bench.input("decay", &[step.rows, value_heads], rows.decay.clone()),
        beta: bench.input("beta", &[step.rows, value_heads], rows.beta.clone()),
        seq_rows: bench.input("seq_rows", &[step.seq_rows.len()], step.seq_rows.clone()),
        state_read: bench.input(
            "state_read",
            &[step.state_read.len()],
            step.state_read.clone(),
        ),
        state_write: bench.input("state_write", &[step.rows], step.state_write.clone()),
        state: bench.input(
            "state",
            &[slots, value_heads, key_dim, value_dim],
            state.to_vec(),
        ),
        out: bench.output("out", &[step.rows, value_heads * value_dim]),
        key_heads,
        l2_eps: EPS,
        scale: scale(shape),
    }
}

fn scale(shape: &DeltaRuleShape) -> f32 {
    1.0 / (shape.key_dim as f32).sqrt()
}

fn run(
    shape: &DeltaRuleShape,
    step: &StateStep,
    rows: &Rows,
    state: &mut Vec<f32>,
) -> Result<Vec<bf16>, LaunchError> {
    let mut bench = Bench::default();
    let op = op(&mut bench, shape, step, rows, state);
    let result = bench.run(op.clone());
    *state = bench.get(op.state).to_vec();
    result.map(|()| bench.get(op.out).to_vec())
}

fn whole(shape: &DeltaRuleShape, rows: &Rows) -> (Vec<bf16>, Vec<f32>) {
    let mut state = vec![0.0; slot_len(shape)];
    let n = rows.decay.len() / shape.value_heads;
    let out = run(shape, &StateStep::whole(n), rows, &mut state).expect("good data");
    (out, state)
}

/// The recurrence of the paper in f64, from zeros: outputs and the final state.
fn exact(shape: &DeltaRuleShape, rows: &Rows) -> (Vec<f64>, Vec<f64>) {
    let &DeltaRuleShape {
        key_heads,
        value_heads,
        key_dim,
        value_dim,
    } = shape;
    let n = rows.decay.len() / value_heads;
    let mut out = vec![0.0; n * value_heads * value_dim];
    let mut states = Vec::new();
    for h in 0..value_heads {
        let key_head = h * key_heads / value_heads;
        let mut state = vec![0.0; key_dim * value_dim];
        for t in 0..n {
            let row: Vec<f64> = rows.qkv[t * shape.columns()..][..shape.columns()]
                .iter()
                .map(|x| f64::from(x.to_f32()))
                .collect();
            let unit = |start: usize| {
                let x = &row[start..][..key_dim];
                let length = (x.iter().map(|x| x * x).sum::<f64>() + f64::from(EPS)).sqrt();
                x.iter().map(|x| x / length).collect::<Vec<f64>>()
            };
            let q = unit(key_head * key_dim);
            let k = unit((key_heads + key_head) * key_dim);
            let v = &row[2 * key_heads * key_dim + h * value_dim..][..value_dim];
            let gate = t * value_heads + h;
            let (decay, beta) = (f64::from(rows.decay[gate]), f64::from(rows.beta[gate]));
            state.iter_mut().for_each(|s| *s *= decay);
            for (j, v) in v.iter().enumerate() {
                let read: f64 = (0..key_dim).map(|i| state[i * value_dim + j] * k[i]).sum();
                (0..key_dim).for_each(|i| state[i * value_dim + j] += k[i] * (v - read) * beta);
                let o: f64 = (0..key_dim).map(|i| state[i * value_dim + j] * q[i]).sum();
                out[gate * value_dim + j] = o / (key_dim as f64).sqrt();
            }
        }
        states.extend(state);
    }
    (out, states)
}

const SMALL: DeltaRuleShape = DeltaRuleShape {
    key_heads: 2,
    value_heads: 4,
    key_dim: 6,
    value_dim: 5,
};

#[test]
fn by_hand() {
    let shape = DeltaRuleShape {
        key_heads: 1,
        value_heads: 1,
        key_dim: 2,
        value_dim: 3,
    };
    let mut state = vec![2.0, 4.0, 6.0, 8.0, 10.0, 12.0];
    let [k, q] = [[0.5, 0.25], [2.0, 1.0]];
    let mut out = [b(0.0); 3];
    gated_delta_rule_row(
        &mut state,
        &q,
        &k,
        &bs(&[3.0, 5.0, 7.0]),
        0.5,
        0.5,
        &mut out,
    );
    // Decayed: 1 2 3 / 4 5 6. Read: 1.5 2.25 3. d: 0.75 1.375 2.
    assert_eq!(state, [1.375, 2.6875, 4.0, 4.1875, 5.34375, 6.5]);
    assert_same_bits(&out, &bs(&[6.9375, 10.71875, 14.5]), "out");
    assert_eq!(slot_len(&shape), state.len());
    // A head of zeros has no direction; eps keeps it at zero.
    assert_eq!(l2_norm(&bs(&[0.0, -0.0]), EPS), [0.0, 0.0]);
}

/// Element by element in the written order of operations, over a key dim with uneven lanes.
#[test]
fn has_the_written_order() {
    let (dk, dv) = (75, 4);
    let random = &mut Random::new(18);
    let before = random.f32s(dk * dv, 1.0);
    let (q, k) = (random.f32s(dk, 0.3), random.f32s(dk, 0.3));
    let (v, decay, beta) = (random.bf16s(dv, 2.0), 0.93, 0.71);
    let (mut state, mut out) = (before.clone(), vec![b(0.0); dv]);
    gated_delta_rule_row(&mut state, &q, &k, &v, decay, beta, &mut out);
    let lanes_of = |column: &[f32], key: &[f32]| {
        let mut lanes = [0f32; 32];
        column
            .iter()
            .zip(key)
            .enumerate()
            .for_each(|(i, (s, k))| lanes[i % 32] += s * k);
        tree_sum(lanes)
    };
    let mut fused_differs = 0;
    for j in 0..dv {
        let mut column: Vec<f32> = (0..dk).map(|i| before[i * dv + j] * decay).collect();
        let d = (v[j].to_f32() - lanes_of(&column, &k)) * beta;
        for (i, s) in column.iter_mut().enumerate() {
            let fused = (f64::from(k[i]) * f64::from(d) + f64::from(*s)) as f32;
            *s += k[i] * d;
            fused_differs += usize::from(fused.to_bits() != s.to_bits());
            assert_eq!(state[i * dv + j].to_bits(), s.to_bits(), "S[{i},{j}]");
        }
        assert_same_bits(&out[j..=j], &[b(lanes_of(&column, &q))], "out");
    }
    assert!(
        fused_differs > 0,
        "the data must tell a fused multiply-add from two roundings"
    );
}

/// The norm sums in lane order and its factor comes before the scale; the last place of f32 that this
/// decides is hidden by bf16 in all but one of some 10^5 outputs.
#[test]
fn norms_in_the_written_order() {
    let mut ascending_differs = 0;
    for x in Random::new(32).bf16s(100 * 75, 2.0).chunks_exact(75) {
        let squares = x.iter().map(|x| x.to_f32() * x.to_f32());
        let r = rsqrt(lane_sum(squares.clone()) + EPS);
        let expect: Vec<f32> = x.iter().map(|x| x.to_f32() * r).collect();
        assert_eq!(l2_norm(x, EPS), expect);
        let r_ascending = rsqrt(squares.sum::<f32>() + EPS);
        ascending_differs += usize::from(r_ascending.to_bits() != r.to_bits());
    }
    assert!(ascending_differs > 10, "{ascending_differs}");

    let shape = DeltaRuleShape {
        key_heads: 1,
        value_heads: 1,
        key_dim: 3,
        value_dim: 8,
    };
    let rows = Rows::random(1 << 16, &shape, &mut Random::new(33));
    let (out, _) = whole(&shape, &rows);
    let (mut state, mut scale_first_differs) = (vec![0.0; slot_len(&shape)], 0);
    for (t, out) in out.chunks_exact(8).enumerate() {
        let [q, k, v] = shape.split(&rows.qkv[t * shape.columns()..][..shape.columns()], 0);
        let (k, gates) = (l2_norm(k, EPS), (rows.decay[t], rows.beta[t]));
        let r = rsqrt(lane_sum(q.iter().map(|q| q.to_f32() * q.to_f32())) + EPS);
        let row = |q: Vec<f32>, state: &mut [f32]| {
            let mut out = vec![b(0.0); 8];
            gated_delta_rule_row(state, &q, &k, v, gates.0, gates.1, &mut out);
            out
        };
        let other = q.iter().map(|q| q.to_f32() * (r * scale(&shape))).collect();
        let other = row(other, &mut state.clone());
        let written = q.iter().map(|q| (q.to_f32() * r) * scale(&shape)).collect();
        assert_same_bits(out, &row(written, &mut state), "scaled after the norm");
        scale_first_differs += other
            .iter()
            .zip(out)
            .filter(|(other, o)| other != o)
            .count();
    }
    assert!(scale_first_differs > 0);
}

/// Case 17: every ratio of value heads to key heads, to the last element of the last head.
#[test]
fn every_head_ratio_is_right() {
    for ratio in 1..=4 {
        for key_heads in [1, 2, 3] {
            let shape = DeltaRuleShape {
                key_heads,
                value_heads: ratio * key_heads,
                key_dim: 5,
                value_dim: 7,
            };
            let rows = Rows::random(9, &shape, &mut Random::new(19));
            let ((out, state), (exact_out, exact_state)) =
                (whole(&shape, &rows), exact(&shape, &rows));
            let context = format!("{shape:?}");
            for (o, e) in out.iter().zip(exact_out) {
                assert_close(o.to_f32(), e, 4e-3, &context);
            }
            for (s, e) in state.iter().zip(exact_state) {
                assert_close(*s, e, 1e-5, &context);
            }
        }
    }
}

/// Case 19: a 200-token prompt, split every way in two and in the shapes of the field.
#[test]
fn every_split_of_a_prompt_is_the_same() {
    let shape = SMALL;
    let rows = Rows::random(200, &shape, &mut Random::new(20));
    let (expect, expect_state) = whole(&shape, &rows);
    let halves = (1..200).map(|first| vec![first, 200 - first]);
    let shapes = [
        vec![1; 200],
        [vec![70, 30], vec![1; 100]].concat(),
        vec![64, 64, 64, 8],
    ];
    for sizes in halves.chain(shapes) {
        let mut state = vec![f32::NAN; slot_len(&shape)];
        let mut out = Vec::new();
        for part in ranges(&sizes) {
            let read = if part.start == 0 { NONE } else { 0 };
            let input = rows.cut(part.clone(), &shape);
            let step = StateStep::build(
                vec![Chunk {
                    sequence: 0,
                    rows: part,
                }],
                &[read],
                &[0],
                0,
                0,
            );
            out.extend(run(&shape, &step, &input, &mut state).expect("good data"));
        }
        assert_same_bits(&out, &expect, &format!("{sizes:?}"));
        assert_eq!(bytes(&state), bytes(&expect_state), "state after {sizes:?}");
    }
}

/// One write slot a row, as verification uses them: each holds what a run that ends there leaves.
#[test]
fn every_row_may_keep_its_state() {
    let shape = SMALL;
    let rows = Rows::random(6, &shape, &mut Random::new(21));
    let mut step = StateStep::whole(6);
    step.state_write = vec![4, 0, NONE, 5, 1, 2];
    let mut state = vec![f32::NAN; 7 * slot_len(&shape)];
    run(&shape, &step, &rows, &mut state).expect("good data");
    for (row, &slot) in step
        .state_write
        .iter()
        .enumerate()
        .filter(|(_, slot)| **slot != NONE)
    {
        let (_, alone) = whole(&shape, &rows.cut(0..row + 1, &shape));
        let kept = &state[slot as usize * slot_len(&shape)..][..slot_len(&shape)];
        assert_eq!(bytes(kept), bytes(&alone), "after row {row}");
    }
    for untouched in [3, 6] {
        let slot = &state[untouched * slot_len(&shape)..][..slot_len(&shape)];
        assert!(slot.iter().all(|x| x.is_nan()), "slot {untouched}");
    }
}

#[test]
fn refuses_slots_out_of_range_and_leaves_the_state() {
    let shape = SMALL;
    let rows = Rows::random(2, &shape, &mut Random::new(22));
    for (read, write, fragment) in [
        (2, 0, "read slot of sequence 0"),
        (0, 2, "write slot of row 1"),
    ] {
        let before = vec![1.0; 2 * slot_len(&shape)];
        let mut state = before.clone();
        let step = StateStep::build(
            vec![Chunk {
                sequence: 0,
                rows: 0..2,
            }],
            &[read],
            &[write],
            0,
            0,
        );
        let result = run(&shape, &step, &rows, &mut state).map(|_| ());
        assert_refused(result, &["gated_delta_rule", fragment, "is 2", "2 slots"]);
        assert_eq!(state, before);
    }
}

#[test]
fn refuses_shapes_and_parameters_by_name() {
    let shape = SMALL;
    let mut bench = Bench::default();
    let rows = Rows::random(3, &shape, &mut Random::new(23));
    let op = op(
        &mut bench,
        &shape,
        &StateStep::whole(3),
        &rows,
        &vec![0.0; slot_len(&shape)],
    );
    bench.check(op.clone()).expect("good shapes");
    for key_heads in [0, 3, 8] {
        let refused = bench.check(GatedDeltaRule {
            key_heads,
            ..op.clone()
        });
        assert_refused(refused, &["key_heads", "divisor of the 4 value heads"]);
    }
    assert_refused(
        bench.check(GatedDeltaRule {
            key_heads: 4,
            ..op.clone()
        }),
        &["buffer qkv", "[3, 68]"],
    );
    assert_refused(
        bench.check(GatedDeltaRule {
            l2_eps: 0.0,
            ..op.clone()
        }),
        &["l2_eps is 0"],
    );
    assert_refused(
        bench.check(GatedDeltaRule {
            scale: f32::NAN,
            ..op.clone()
        }),
        &["scale is NaN"],
    );
    let beta = bench.input("short beta", &[2, 4], vec![0.0; 8]);
    assert_refused(
        bench.check(GatedDeltaRule { beta, ..op }),
        &["short beta", "[3, 4]"],
    );
}

#[test]
fn moves_only_the_slots_it_names() {
    let shape = SMALL;
    let mut bench = Bench::default();
    let rows = Rows::random(3, &shape, &mut Random::new(24));
    let op = op(
        &mut bench,
        &shape,
        &StateStep::whole(3),
        &rows,
        &vec![0.0; 50 * slot_len(&shape)],
    );
    let activations = 3 * (2 * 44 + 4 * 4 + 4 * 4 + 2 * 20);
    let min = activations + (2 + 1 + 3) * 4;
    let slot = 4 * slot_len(&shape) as u64;
    assert_eq!(
        op.traffic(&bench.table),
        Traffic {
            min,
            max: min + slot * (1 + 3)
        }
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Cases 18 and 20: any slots, any company, any chunks, stale slots everywhere.
    #[test]
    fn any_schedule_equals_alone(
        seed: u64,
        lengths in proptest::collection::vec(1usize..40, 1..5),
        key_heads in 1usize..3,
        ratio in 1usize..4,
        key_dim in 1usize..40,
        value_dim in 1usize..6,
    ) {
        let shape = DeltaRuleShape { key_heads, value_heads: key_heads * ratio, key_dim, value_dim };
        let random = &mut Random::new(seed);
        let sequences: Vec<Rows> = lengths.iter().map(|&n| Rows::random(n, &shape, random)).collect();
        assert_any_schedule_equals_alone(
            &lengths, slot_len(&shape), shape.value_heads * value_dim, seed, f32::NAN,
            |step, which, state| {
                let of = |field: fn(&Rows) -> &Vec<f32>| {
                    let chosen: Vec<_> = which.iter().map(|&s| field(&sequences[s]).clone()).collect();
                    step.gather(&chosen, shape.value_heads)
                };
                let qkv: Vec<_> = which.iter().map(|&s| sequences[s].qkv.clone()).collect();
                let rows = Rows {
                    qkv: step.gather(&qkv, shape.columns()),
                    decay: of(|r| &r.decay),
                    beta: of(|r| &r.beta),
                };
                run(&shape, step, &rows, state).expect("good data")
            },
        );
    }
}
