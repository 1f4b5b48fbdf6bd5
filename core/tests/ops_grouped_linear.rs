//! Linear layers of the experts.

mod common;

use common::{Bench, Random, assert_refused, assert_same_bits, b, bs};
use layerlet_core::NONE;
use layerlet_core::config::MAX_W8A8_K;
use layerlet_core::launch::{Launch, LaunchError, Traffic};
use layerlet_core::numerics::{bf16, lane_dot_bf16, round_bf16};
use layerlet_core::ops::{GroupedLinearBf16, GroupedLinearW8A8, RowSource, expert_prologue};
use proptest::prelude::*;

/// Sizes of the experts' weights: `[E, N, K]`, all different (case 10).
type Sizes = [usize; 3];

/// Routes of a step, grouped.
struct Routes {
    ids: Vec<u32>,
    k: usize,
    offsets: Vec<u32>,
    slot_of_row: Vec<u32>,
}

impl Routes {
    fn new(ids: Vec<u32>, k: usize, experts: usize) -> Routes {
        let mut offsets = vec![0; experts + 1];
        let (mut slot_of_row, mut row_of_slot) = (vec![0; ids.len()], vec![0; ids.len()]);
        expert_prologue(&ids, &mut offsets, &mut slot_of_row, &mut row_of_slot).expect("experts");
        Routes {
            ids,
            k,
            offsets,
            slot_of_row,
        }
    }

    /// Skewed: half of the tokens go to the same few experts; some rows are inert.
    fn skewed(tokens: usize, k: usize, experts: usize, random: &mut Random) -> Routes {
        let hot = random.below(experts);
        let ids = (0..tokens).flat_map(|_| match random.below(5) {
            0 => vec![NONE; k],
            1 | 2 => (0..k).map(|r| ((hot + r) % experts) as u32).collect(),
            _ => (0..k).map(|_| random.below(experts) as u32).collect(),
        });
        Routes::new(ids.collect(), k, experts)
    }

    fn tokens(&self) -> usize {
        self.ids.len() / self.k
    }
}

/// Data of both forms: `rows` input rows, weights, scales.
struct Data {
    sizes: Sizes,
    x: Vec<bf16>,
    weight: Vec<bf16>,
    codes: Vec<i8>,
    scale: Vec<f32>,
    codes_weight: Vec<i8>,
    weight_scale: Vec<f32>,
}

impl Data {
    fn random(rows: usize, sizes: Sizes, random: &mut Random) -> Data {
        let [e, n, k] = sizes;
        Data {
            sizes,
            x: random.bf16s(rows * k, 2.0),
            weight: random.bf16s(e * n * k, 1.0),
            codes: random.i8s(rows * k),
            scale: random.f32s(rows, 0.1),
            codes_weight: random.i8s(e * n * k),
            weight_scale: random.f32s(e * n, 0.01),
        }
    }

    fn bf16(&self, routes: &Routes, source: RowSource) -> Result<Vec<bf16>, LaunchError> {
        let [e, n, k] = self.sizes;
        let pairs = routes.slot_of_row.len();
        let rows = self.x.len() / k;
        let mut bench = Bench::default();
        let op = GroupedLinearBf16 {
            x: bench.input("x", &[rows, k], self.x.clone()),
            weight: bench.input("weight", &[e, n, k], self.weight.clone()),
            offsets: bench.input("offsets", &[e + 1], routes.offsets.clone()),
            slot_of_row: bench.input("slot_of_row", &[pairs], routes.slot_of_row.clone()),
            out: bench.output("out", &[pairs, n]),
            source,
        };
        bench.run(op.clone())?;
        Ok(bench.get(op.out).to_vec())
    }

    fn w8a8(&self, routes: &Routes, source: RowSource) -> Result<Vec<bf16>, LaunchError> {
        let [e, n, k] = self.sizes;
        let pairs = routes.slot_of_row.len();
        let rows = self.scale.len();
        let mut bench = Bench::default();
        let op = GroupedLinearW8A8 {
            codes: bench.input("codes", &[rows, k], self.codes.clone()),
            scale: bench.input("scale", &[rows], self.scale.clone()),
            weight: bench.input("weight", &[e, n, k], self.codes_weight.clone()),
            weight_scale: bench.input("weight_scale", &[e, n], self.weight_scale.clone()),
            offsets: bench.input("offsets", &[e + 1], routes.offsets.clone()),
            slot_of_row: bench.input("slot_of_row", &[pairs], routes.slot_of_row.clone()),
            out: bench.output("out", &[pairs, n]),
            source,
        };
        bench.run(op.clone())?;
        Ok(bench.get(op.out).to_vec())
    }

    /// One output of one input row through one expert, from the formula; `at(n, k)` places a weight.
    fn element(&self, w8a8: bool, row: usize, expert: usize, n: usize, at: At) -> bf16 {
        let [_, columns, k] = self.sizes;
        let place = |j: usize| expert * columns * k + at(self.sizes, n, j);
        if w8a8 {
            let acc: i64 = (0..k)
                .map(|j| {
                    i64::from(self.codes[row * k + j]) * i64::from(self.codes_weight[place(j)])
                })
                .sum();
            round_bf16((acc as f32 * self.scale[row]) * self.weight_scale[expert * columns + n])
        } else {
            let weight: Vec<bf16> = (0..k).map(|j| self.weight[place(j)]).collect();
            round_bf16(lane_dot_bf16(&self.x[row * k..][..k], &weight))
        }
    }

    /// The whole output, pair by pair.
    fn expect(&self, w8a8: bool, routes: &Routes, source: RowSource, at: At) -> Vec<bf16> {
        let n = self.sizes[1];
        let mut out = vec![bf16::ZERO; routes.slot_of_row.len() * n];
        let mut row_out = 0;
        for expert in 0..self.sizes[0] {
            for slot in (0..routes.ids.len()).filter(|&s| routes.ids[s] as usize == expert) {
                let row = match source {
                    RowSource::Token { k } => slot / k,
                    RowSource::Row => row_out,
                };
                for j in 0..n {
                    out[row_out * n + j] = self.element(w8a8, row, expert, j, at);
                }
                row_out += 1;
            }
        }
        out
    }
}

type At = fn(Sizes, usize, usize) -> usize;

fn row_major([_, _, k]: Sizes, n: usize, j: usize) -> usize {
    n * k + j
}

fn column_major([_, columns, _]: Sizes, n: usize, j: usize) -> usize {
    j * columns + n
}

/// Input rows that a source needs.
fn rows_of(source: RowSource, routes: &Routes) -> usize {
    match source {
        RowSource::Token { .. } => routes.tokens(),
        RowSource::Row => routes.slot_of_row.len(),
    }
}

/// Cases 9 and 10: 2 to 16 tokens with skewed routes, no two sizes equal; read with the wrong layout it shows.
#[test]
fn every_pair_goes_through_its_expert() {
    for tokens in 2..=16 {
        let (sizes, k) = ([5, 7, 41], 3);
        let random = &mut Random::new(tokens as u64);
        let mut routes = Routes::skewed(tokens, k, sizes[0], random);
        if routes.ids.iter().all(|&id| id == NONE) {
            routes = Routes::new(vec![1; tokens * k], k, sizes[0]);
        }
        for source in [RowSource::Token { k }, RowSource::Row] {
            let data = Data::random(rows_of(source, &routes), sizes, random);
            for (w8a8, out) in [
                (false, data.bf16(&routes, source)),
                (true, data.w8a8(&routes, source)),
            ] {
                let out = out.expect("good routes");
                let context = format!("{tokens} tokens, {source:?}, w8a8 {w8a8}");
                assert_same_bits(
                    &out,
                    &data.expect(w8a8, &routes, source, row_major),
                    &context,
                );
                let transposed = data.expect(w8a8, &routes, source, column_major);
                assert_ne!(out, transposed, "{context}");
            }
        }
    }
}

/// Case 4: the scales of all experts and columns are different powers of two, so each output names its own.
#[test]
fn each_expert_has_its_own_scales() {
    let [e, n, k] = [5, 3, 2];
    let ids = vec![4, 0, 2, 3, 1, 4];
    let routes = Routes::new(ids, 2, e);
    let scales: Vec<f32> = (0..e * n)
        .map(|i| f32::from_bits(((127 - i) as u32) << 23))
        .collect();
    let data = Data {
        sizes: [e, n, k],
        x: vec![],
        weight: vec![],
        codes: vec![1, 0, 3, 0, 5, 0],
        scale: vec![1.0, 2.0, 4.0],
        codes_weight: [7, -9].repeat(e * n),
        weight_scale: scales.clone(),
    };
    let out = data
        .w8a8(&routes, RowSource::Token { k: 2 })
        .expect("good routes");
    let mut expect = Vec::new();
    // Rows by expert: 0 (token 0), 1 (token 2), 2 (token 1), 3 (token 1), 4 (tokens 0 and 2).
    for (expert, factor) in [
        (0, 7.0),
        (1, 140.0),
        (2, 42.0),
        (3, 42.0),
        (4, 7.0),
        (4, 140.0),
    ] {
        expect.extend((0..n).map(|j| b(factor * scales[expert * n + j])));
    }
    assert_same_bits(&out, &expect, "scales");
}

/// Case 8: one expert takes all, 255 take none; then nobody takes any. Outputs start as 0xAA, unused inputs are NaN.
#[test]
fn hot_and_empty_experts() {
    let sizes = [256, 2, 5];
    let random = &mut Random::new(8);
    let mut data = Data::random(40, sizes, random);
    for hot in [0u32, 77, 255] {
        let routes = Routes::new(vec![hot; 40], 1, 256);
        let source = RowSource::Token { k: 1 };
        let expect = data.expect(true, &routes, source, row_major);
        assert_same_bits(
            &data.w8a8(&routes, source).expect("good routes"),
            &expect,
            "s8",
        );
        let expect = data.expect(false, &routes, source, row_major);
        assert_same_bits(
            &data.bf16(&routes, source).expect("good routes"),
            &expect,
            "bf16",
        );
    }
    data.x.fill(bf16::NAN);
    data.scale.fill(f32::NAN);
    let nobody = Routes::new(vec![NONE; 40], 1, 256);
    for source in [RowSource::Token { k: 1 }, RowSource::Row] {
        assert_eq!(
            data.bf16(&nobody, source).expect("no rows"),
            vec![bf16::ZERO; 80]
        );
        assert_eq!(
            data.w8a8(&nobody, source).expect("no rows"),
            vec![bf16::ZERO; 80]
        );
    }
    let nothing = Routes::new(vec![], 8, 256);
    let data = Data::random(0, sizes, random);
    assert_eq!(
        data.bf16(&nothing, RowSource::Token { k: 8 })
            .expect("no tokens"),
        []
    );
    assert_eq!(data.w8a8(&nothing, RowSource::Row).expect("no tokens"), []);
}

/// Case 11: the rows of token 0 are the same bytes beside 0 to 129 others, wherever those go.
#[test]
fn token_0_is_the_same_beside_any_number_of_tokens() {
    let (sizes, k) = ([6, 9, 64], 2);
    let random = &mut Random::new(11);
    let data = Data::random(130, sizes, random);
    let source = RowSource::Token { k };
    let outputs = |w8a8: bool, tokens: usize, random: &mut Random| -> Vec<bf16> {
        let mut ids: Vec<u32> = (0..tokens * k)
            .map(|_| random.below(sizes[0]) as u32)
            .collect();
        ids[..k].copy_from_slice(&[4, 1]);
        let routes = Routes::new(ids, k, sizes[0]);
        let some = Data {
            x: data.x[..tokens * sizes[2]].to_vec(),
            codes: data.codes[..tokens * sizes[2]].to_vec(),
            scale: data.scale[..tokens].to_vec(),
            weight: data.weight.clone(),
            codes_weight: data.codes_weight.clone(),
            weight_scale: data.weight_scale.clone(),
            sizes,
        };
        let out = match w8a8 {
            true => some.w8a8(&routes, source),
            false => some.bf16(&routes, source),
        };
        let out = out.expect("good routes");
        let row = |slot| {
            routes
                .slot_of_row
                .iter()
                .position(|&s| s == slot)
                .expect("a row")
        };
        (0..k as u32)
            .flat_map(|slot| out[row(slot) * sizes[1]..][..sizes[1]].to_vec())
            .collect()
    };
    for w8a8 in [false, true] {
        let alone = outputs(w8a8, 1, random);
        for tokens in 2..=130 {
            let context = format!("{tokens} tokens");
            assert_same_bits(&outputs(w8a8, tokens, random), &alone, &context);
        }
    }
}

/// Case 12: an expert twice in one route computes twice, in two rows.
#[test]
fn a_repeated_expert_computes_twice() {
    let routes = Routes::new(vec![2, 2, 2, 0], 2, 3);
    let data = Data::random(2, [3, 4, 10], &mut Random::new(12));
    let source = RowSource::Token { k: 2 };
    let out = data.w8a8(&routes, source).expect("good routes");
    assert_same_bits(
        &out,
        &data.expect(true, &routes, source, row_major),
        "repeats",
    );
    assert_same_bits(&out[4..8], &out[8..12], "both rows of token 0");
}

/// Case 13: an output is what it was after later calls have run over other data.
#[test]
fn later_calls_leave_earlier_results() {
    let (sizes, k) = ([4, 3, 20], 2);
    let [e, n, width] = sizes;
    let random = &mut Random::new(13);
    let routes = Routes::skewed(9, k, e, random);
    let data = Data::random(9, sizes, random);
    let pairs = routes.slot_of_row.len();
    let mut bench = Bench::default();
    let first = GroupedLinearBf16 {
        x: bench.input("x", &[9, width], data.x.clone()),
        weight: bench.input("weight", &[e, n, width], data.weight.clone()),
        offsets: bench.input("offsets", &[e + 1], routes.offsets.clone()),
        slot_of_row: bench.input("slot_of_row", &[pairs], routes.slot_of_row.clone()),
        out: bench.output("out", &[pairs, n]),
        source: RowSource::Token { k },
    };
    let second = GroupedLinearBf16 {
        x: bench.input("other x", &[9, width], random.bf16s(9 * width, 1.0)),
        out: bench.output("other out", &[pairs, n]),
        ..first.clone()
    };
    bench.run(first.clone()).expect("good routes");
    bench.run(second.clone()).expect("good routes");
    let expect = data.expect(false, &routes, first.source, row_major);
    assert_same_bits(bench.get(first.out), &expect, "after the second call");
    assert_ne!(bench.get(second.out), expect);
}

/// Sums beyond 2^24 are exact; their conversion rounds to nearest even. A float accumulator would show.
#[test]
fn large_sums_are_exact() {
    let k = 2001;
    let data = Data {
        sizes: [1, 1, k],
        x: vec![],
        weight: vec![],
        codes: [vec![127; k - 1], vec![1]].concat(),
        scale: vec![1.0],
        codes_weight: [vec![127; k - 1], vec![1]].concat(),
        weight_scale: vec![1.0],
    };
    let routes = Routes::new(vec![0], 1, 1);
    let out = data.w8a8(&routes, RowSource::Row).expect("good routes");
    assert_eq!(out, [round_bf16(32_258_001_i32 as f32)]);
    // bf16 hides the last bits; a scale that makes the sum cross a tie brings them out.
    let tie = Data {
        sizes: [1, 1, 4],
        x: vec![],
        weight: vec![],
        codes: vec![127, 127, 2, 1],
        scale: vec![1.0],
        codes_weight: vec![127, 127, 8, 1],
        weight_scale: vec![1.0],
    };
    let out = tie.w8a8(&routes, RowSource::Row).expect("good routes");
    assert_eq!(out, bs(&[32_275.0]));
}

#[test]
fn routes_that_lead_nowhere_are_refused() {
    let data = Data::random(3, [2, 3, 4], &mut Random::new(1));
    let check = |offsets: [u32; 3], slot_of_row: [u32; 6], found: &str| {
        let routes = Routes {
            ids: vec![0; 6],
            k: 2,
            offsets: offsets.to_vec(),
            slot_of_row: slot_of_row.to_vec(),
        };
        let source = RowSource::Token { k: 2 };
        let fragments = ["a route", found, "ascend"];
        let bf16 = data.bf16(&routes, source).map(drop);
        assert_refused(bf16, &[&["grouped_linear_bf16"], &fragments[..]].concat());
        let w8a8 = data.w8a8(&routes, source).map(drop);
        assert_refused(w8a8, &[&["grouped_linear_w8a8"], &fragments[..]].concat());
    };
    let slots = [0, 1, 2, 3, 4, 5];
    check([1, 3, 6], slots, "is 1,");
    check([0, 4, 3], slots, "is 3,");
    check([0, 3, 7], slots, "is 7,");
    check([0, NONE, 6], slots, &NONE.to_string());
    check([0, 3, 6], [0, 1, 2, 3, 4, 6], "is 6,");
    check([0, 3, 6], [0, 1, 2, 3, 4, NONE], &NONE.to_string());
}

#[test]
fn shapes_are_refused() {
    let check = |x: [usize; 2],
                 weight: [usize; 3],
                 pairs: usize,
                 offsets: usize,
                 out: [usize; 2],
                 source: RowSource,
                 fragments: &[&str]| {
        let mut bench = Bench::default();
        let [rows, _] = x;
        let [e, n, _] = weight;
        let offsets = bench.output("offsets", &[offsets]);
        let slot_of_row = bench.output("slot_of_row", &[pairs]);
        let bf16 = GroupedLinearBf16 {
            x: bench.output("x", &x),
            weight: bench.output("weight", &weight),
            offsets,
            slot_of_row,
            out: bench.output("out", &out),
            source,
        };
        let w8a8 = GroupedLinearW8A8 {
            codes: bench.output("codes x", &x),
            scale: bench.output("scale", &[rows]),
            weight: bench.output("codes weight", &weight),
            weight_scale: bench.output("weight_scale", &[e, n]),
            offsets,
            slot_of_row,
            out: bf16.out,
            source,
        };
        assert_refused(bench.check(bf16), fragments);
        assert_refused(bench.check(w8a8), fragments);
    };
    let token = RowSource::Token { k: 2 };
    let good = ([3, 5], [4, 7, 5], 6, 5, [6, 7]);
    let (x, weight, pairs, offsets, out) = good;
    check(
        x,
        [0, 7, 5],
        pairs,
        offsets,
        out,
        token,
        &["weight", "none of them 0"],
    );
    check(
        x,
        [4, 0, 5],
        pairs,
        offsets,
        out,
        token,
        &["weight", "none of them 0"],
    );
    check(
        x,
        [4, 7, 0],
        pairs,
        offsets,
        out,
        token,
        &["weight", "none of them 0"],
    );
    check(x, [4, 5, 7], pairs, offsets, out, token, &["x", "[3, 7]"]);
    check(
        x,
        weight,
        7,
        offsets,
        out,
        token,
        &["buffer slot_of_row", "2 for each token"],
    );
    check(x, weight, 8, offsets, out, token, &["x", "[4, 5]"]);
    check(x, weight, pairs, 4, out, token, &["buffer offsets", "[5]"]);
    check(
        x,
        weight,
        pairs,
        offsets,
        [6, 5],
        token,
        &["buffer out", "[6, 7]"],
    );
    check(
        x,
        weight,
        pairs,
        offsets,
        out,
        RowSource::Row,
        &["x", "[6, 5]"],
    );
    check(
        x,
        weight,
        pairs,
        offsets,
        out,
        RowSource::Token { k: 0 },
        &["source", "at least 1"],
    );
}

/// What only the integer form can get wrong.
#[test]
fn scales_and_depth_are_refused() {
    let check = |k: usize, scale: &[usize], weight_scale: &[usize], fragments: &[&str]| {
        let mut bench = Bench::default();
        let op = GroupedLinearW8A8 {
            codes: bench.output("codes", &[2, k]),
            scale: bench.output("scale", scale),
            weight: bench.output("weight", &[3, 1, k]),
            weight_scale: bench.output("weight_scale", weight_scale),
            offsets: bench.output("offsets", &[4]),
            slot_of_row: bench.output("slot_of_row", &[2]),
            out: bench.output("out", &[2, 1]),
            source: RowSource::Row,
        };
        if fragments.is_empty() {
            bench.check(op).expect("the largest K");
        } else {
            assert_refused(bench.check(op), fragments);
        }
    };
    check(MAX_W8A8_K, &[2], &[3, 1], &[]);
    check(
        MAX_W8A8_K + 1,
        &[2],
        &[3, 1],
        &["buffer weight", "at most 131072"],
    );
    check(8, &[3], &[3, 1], &["buffer scale", "[2]"]);
    check(8, &[2], &[1, 3], &["buffer weight_scale", "[3, 1]"]);
    check(8, &[2], &[3], &["buffer weight_scale", "[3, 1]"]);
}

/// Weights of one expert at least, of min(E, P) at most; everything else once.
#[test]
fn traffic_depends_on_routes() {
    let check = |pairs: usize, touched: [u64; 2]| {
        let (e, n, k) = (16, 6, 10);
        let mut bench = Bench::default();
        let op = GroupedLinearW8A8 {
            codes: bench.output("codes", &[pairs, k]),
            scale: bench.output("scale", &[pairs]),
            weight: bench.output("weight", &[e, n, k]),
            weight_scale: bench.output("weight_scale", &[e, n]),
            offsets: bench.output("offsets", &[e + 1]),
            slot_of_row: bench.output("slot_of_row", &[pairs]),
            out: bench.output("out", &[pairs, n]),
            source: RowSource::Row,
        };
        let rest = (pairs * (k + 4 + 4 + 2 * n) + 4 * (e + 1)) as u64;
        let [min, max] = touched.map(|experts| rest + experts * (n * k + 4 * n) as u64);
        let traffic = Launch::from(op).traffic(&bench.table);
        assert_eq!(traffic, Traffic { min, max }, "{pairs} pairs");
    };
    check(0, [0, 0]);
    check(1, [1, 1]);
    check(8, [1, 8]);
    check(40, [1, 16]);
}

proptest! {
    #[test]
    fn any_routes(tokens in 0usize..40, k in 1usize..5, e in 1usize..9, n in 1usize..6, width in 1usize..70, seed: u64) {
        let random = &mut Random::new(seed);
        let routes = Routes::skewed(tokens, k, e, random);
        for source in [RowSource::Token { k }, RowSource::Row] {
            let data = Data::random(rows_of(source, &routes), [e, n, width], random);
            let expect = data.expect(false, &routes, source, row_major);
            assert_same_bits(&data.bf16(&routes, source).expect("good routes"), &expect, "bf16");
            let expect = data.expect(true, &routes, source, row_major);
            assert_same_bits(&data.w8a8(&routes, source).expect("good routes"), &expect, "s8");
        }
    }
}
