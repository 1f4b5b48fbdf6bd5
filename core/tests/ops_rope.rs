//! RoPE. Case 16 of the field's faults: rotating all dims, losing precision at long positions.

mod common;

use common::{Bench, Random, assert_close, assert_refused, assert_same_bits, b, bs};
use layerlet_core::launch::{LaunchError, Operation, Traffic};
use layerlet_core::numerics::{bf16, rope_angle, rope_cos_sin, rope_inv_freq, round_bf16};
use layerlet_core::ops::{Rope, rope_head};
use proptest::prelude::*;

const LAST_POSITION: u32 = 262_143;

/// Cosines, then sines, of one position.
fn table_row(position: u32, rotary: usize) -> [Vec<bf16>; 2] {
    let angles = rope_inv_freq(1e7, rotary)
        .into_iter()
        .map(|inv| rope_cos_sin(rope_angle(position, inv)));
    let (cos, sin): (Vec<f32>, Vec<f32>) = angles.unzip();
    [bs(&cos), bs(&sin)]
}

struct Case {
    heads: usize,
    head_dim: usize,
    rotary: usize,
    /// Positions in the table.
    positions: usize,
}

impl Case {
    fn op(&self, bench: &mut Bench, x: &[bf16], positions: &[u32]) -> Rope {
        let columns = self.heads * self.head_dim;
        let table = (0..self.positions as u32).flat_map(|p| table_row(p, self.rotary).concat());
        let table: Vec<bf16> = table.collect();
        Rope {
            x: bench.input("x", &[positions.len(), columns], x.to_vec()),
            positions: bench.input("positions", &[positions.len()], positions.to_vec()),
            table: bench.input("table", &[self.positions, 2, self.rotary / 2], table),
            out: bench.output("out", &[positions.len(), columns]),
            head_dim: self.head_dim,
        }
    }

    fn run(&self, x: &[bf16], positions: &[u32]) -> Result<Vec<bf16>, LaunchError> {
        let mut bench = Bench::default();
        let op = self.op(&mut bench, x, positions);
        bench.run(op.clone())?;
        Ok(bench.get(op.out).to_vec())
    }
}

#[test]
fn rotates_halves_not_neighbours() {
    let (zero, one) = (b(0.0), b(1.0));
    let quarter_turn = |x: &[f32], expect: &[f32]| {
        let mut out = vec![b(f32::NAN); x.len()];
        rope_head(&bs(x), &[zero, one], &[one, zero], &mut out);
        assert_same_bits(&out, &bs(expect), &format!("{x:?}"));
    };
    // Pair (0, 2) turns by 90 degrees, pair (1, 3) by none, the rest passes.
    quarter_turn(&[1.0, 0.0, 0.0, 0.0, 7.0], &[0.0, 0.0, 1.0, 0.0, 7.0]);
    quarter_turn(&[0.0, 0.0, 1.0, 0.0, 7.0], &[-1.0, 0.0, 0.0, 0.0, 7.0]);
    quarter_turn(&[0.0, 2.0, 0.0, 3.0, 7.0], &[0.0, 2.0, 0.0, 3.0, 7.0]);
}

/// Case 16, first half: every dim past the rotary part keeps its bits, whatever they are.
#[test]
fn dims_past_the_rotary_part_pass() {
    let case = Case {
        heads: 3,
        head_dim: 256,
        rotary: 64,
        positions: 40,
    };
    let random = &mut Random::new(12);
    let positions: Vec<u32> = (0..7).map(|_| 1 + random.below(39) as u32).collect();
    let bits = (0..7 * 3 * 256)
        .map(|_| bf16::from_bits(random.bits() as u16))
        .collect::<Vec<_>>();
    let out = case.run(&bits, &positions).expect("good data");
    let mut rotated = 0;
    for (x, out) in bits.chunks_exact(256).zip(out.chunks_exact(256)) {
        let same = |range: std::ops::Range<usize>| {
            range
                .filter(|&i| x[i].to_bits() == out[i].to_bits())
                .count()
        };
        assert_eq!(same(64..256), 192);
        rotated += 64 - same(0..64);
    }
    assert!(rotated > 21 * 32, "the rotary part must change");
}

/// Case 16, second half: up to the last position the table is the f64 cosine and sine of the f32 angle.
#[test]
fn long_positions_keep_their_precision() {
    for position in [
        0,
        1,
        1000,
        65_535,
        131_072,
        LAST_POSITION - 1,
        LAST_POSITION,
    ] {
        let [cos, sin] = table_row(position, 64);
        for (j, (cos, sin)) in cos.iter().zip(&sin).enumerate() {
            let inv = 1e7f64.powf(-2.0 * j as f64 / 64.0) as f32;
            let angle = f64::from(position as f32 * inv);
            let context = format!("position {position}, frequency {j}");
            // Half a unit of bf16, and an inverse frequency that may differ by one unit of f32.
            let tolerance = 2f64.powi(-8) * 0.51 + angle * 2f64.powi(-23);
            assert_close(cos.to_f32(), angle.cos(), tolerance, &context);
            assert_close(sin.to_f32(), angle.sin(), tolerance, &context);
        }
    }
}

/// f32 products and one rounding; on this data rounding each product (transformers) differs.
#[test]
fn rounds_once() {
    let random = &mut Random::new(13);
    let mut products_differ = 0;
    for position in [3, 77, LAST_POSITION] {
        let [cos, sin] = table_row(position, 64);
        let x = random.bf16s(64, 2.0);
        let mut out = vec![b(0.0); 64];
        rope_head(&x, &cos, &sin, &mut out);
        for j in 0..32 {
            let [a, b, c, s] = [x[j], x[j + 32], cos[j], sin[j]].map(|x| x.to_f32());
            assert_eq!(out[j].to_bits(), round_bf16(a * c - b * s).to_bits());
            assert_eq!(out[j + 32].to_bits(), round_bf16(b * c + a * s).to_bits());
            let rounded = round_bf16(round_bf16(a * c).to_f32() - round_bf16(b * s).to_f32());
            products_differ += usize::from(rounded.to_bits() != out[j].to_bits());
        }
    }
    assert!(products_differ > 0);
}

#[test]
fn refuses_positions_past_the_table() {
    let case = Case {
        heads: 1,
        head_dim: 8,
        rotary: 4,
        positions: 10,
    };
    let x = bs(&[1.0; 16]);
    case.run(&x, &[0, 9]).expect("the last position");
    for position in [10, 11, u32::MAX] {
        let result = case.run(&x, &[0, position]).map(|_| ());
        assert_refused(
            result,
            &["rope", "row 1", &position.to_string(), "below 10"],
        );
    }
}

#[test]
fn refuses_shapes_by_name() {
    let case = Case {
        heads: 2,
        head_dim: 8,
        rotary: 4,
        positions: 3,
    };
    let mut bench = Bench::default();
    let op = case.op(&mut bench, &bs(&[0.0; 16]), &[0]);
    bench.check(op.clone()).expect("good shapes");
    for head_dim in [0, 3, 5] {
        assert_refused(
            bench.check(Rope {
                head_dim,
                ..op.clone()
            }),
            &["buffer x", "[1, 16]"],
        );
    }
    assert_refused(
        bench.check(Rope {
            head_dim: 2,
            ..op.clone()
        }),
        &["table", "D at most 2"],
    );
    let table = bench.input("flat table", &[3, 1, 2], bs(&[0.0; 6]));
    assert_refused(
        bench.check(Rope { table, ..op }),
        &["flat table", "[positions, 2, D / 2]"],
    );
}

#[test]
fn moves_one_table_row_a_row() {
    let case = Case {
        heads: 2,
        head_dim: 8,
        rotary: 4,
        positions: 50,
    };
    let mut bench = Bench::default();
    let op = case.op(&mut bench, &bs(&[0.0; 48]), &[0, 1, 2]);
    let all = 2 * 48 * 2 + 3 * 4 + 3 * 4 * 2;
    assert_eq!(op.traffic(&bench.table), Traffic { min: all, max: all });
}

proptest! {
    /// A rotation keeps the length of every pair, up to bf16.
    #[test]
    fn pairs_keep_their_length(seed: u64, position in 0..=LAST_POSITION) {
        let x = Random::new(seed).bf16s(64, 4.0);
        let [cos, sin] = table_row(position, 64);
        let mut out = vec![b(0.0); 64];
        rope_head(&x, &cos, &sin, &mut out);
        for j in 0..32 {
            let length = |v: &[bf16]| f64::from(v[j].to_f32()).hypot(f64::from(v[j + 32].to_f32()));
            assert_close(length(&out) as f32, length(&x), 1.5e-2, &format!("pair {j}"));
        }
    }
}
