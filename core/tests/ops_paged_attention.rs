//! Attention over pages. Cases 18, 19 and 20 of the field's faults for the KV cache: pages, chunks, company.

mod common;

use common::schedule::{Chunk, random_steps};
use common::{Bench, Random, assert_close, assert_refused, assert_same_bits, b, bs, ranges};
use layerlet_core::NONE;
use layerlet_core::launch::{LaunchError, Operation, Traffic};
use layerlet_core::numerics::{bf16, exp, lane_dot_bf16, lane_sum, round_bf16, sigmoid};
use layerlet_core::ops::{AttentionPart, KvAppend, PagedAttention, attention_head};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
struct Shape {
    heads: usize,
    groups: usize,
    dim: usize,
}

const SMALL: Shape = Shape {
    heads: 6,
    groups: 2,
    dim: 5,
};

impl Shape {
    fn scale(&self) -> f32 {
        1.0 / (self.dim as f32).sqrt()
    }
}

/// What one sequence brings, row by row.
#[derive(Clone)]
struct Sequence {
    q: Vec<bf16>,
    q_gate: Vec<bf16>,
    k: Vec<bf16>,
    v: Vec<bf16>,
}

impl Sequence {
    fn random(length: usize, shape: Shape, random: &mut Random) -> Sequence {
        Sequence {
            q: random.bf16s(length * shape.heads * shape.dim, 4.0),
            q_gate: random.bf16s(length * shape.heads * shape.dim * 2, 3.0),
            k: random.bf16s(length * shape.groups * shape.dim, 4.0),
            v: random.bf16s(length * shape.groups * shape.dim, 1.0),
        }
    }
}

/// Paged caches that outlive steps, poisoned at the start, and the pages of each sequence.
struct Cache {
    shape: Shape,
    page_size: usize,
    pages: usize,
    per_sequence: usize,
    k: Vec<bf16>,
    v: Vec<bf16>,
    tables: Vec<Vec<u32>>,
}

impl Cache {
    /// Pages for sequences of these lengths, dealt in random order.
    fn new(shape: Shape, page_size: usize, lengths: &[usize], random: &mut Random) -> Cache {
        let per_sequence = lengths.iter().max().expect("sequences").div_ceil(page_size) + 1;
        let pages = lengths.len() * per_sequence;
        let mut free = random.permutation(pages);
        let tables = lengths
            .iter()
            .map(|length| {
                let mut table: Vec<u32> = free.drain(..length.div_ceil(page_size)).collect();
                table.resize(per_sequence, NONE);
                table
            })
            .collect();
        let poison = vec![b(f32::NAN); pages * page_size * shape.groups * shape.dim];
        Cache {
            shape,
            page_size,
            pages,
            per_sequence,
            k: poison.clone(),
            v: poison,
            tables,
        }
    }

    /// Appends and attends; returns the output rows of the chunks, then of `inert` rows.
    fn step(&mut self, chunks: &[Chunk], sequences: &[Sequence], inert: usize) -> Vec<bf16> {
        let Shape { heads, groups, dim } = self.shape;
        let mut bench = Bench::default();
        let live: usize = chunks.iter().map(|c| c.rows.len()).sum();
        let rows = live + inert;
        let gather = |field: fn(&Sequence) -> &Vec<bf16>, width: usize| {
            let parts = chunks.iter().flat_map(|c| {
                field(&sequences[c.sequence])[c.rows.start * width..c.rows.end * width].to_vec()
            });
            let mut all: Vec<bf16> = parts.collect();
            all.resize(rows * width, bf16::ZERO);
            all
        };
        let mut positions: Vec<u32> = chunks
            .iter()
            .flat_map(|c| c.rows.clone())
            .map(|p| p as u32)
            .collect();
        positions.resize(rows, 0);
        let mut row_seq: Vec<u32> = chunks
            .iter()
            .enumerate()
            .flat_map(|(s, c)| std::iter::repeat_n(s as u32, c.rows.len()))
            .collect();
        row_seq.resize(rows, NONE);
        let table: Vec<u32> = chunks
            .iter()
            .flat_map(|c| self.tables[c.sequence].clone())
            .collect();
        let cache_shape = [self.pages, self.page_size, groups, dim];
        let append = KvAppend {
            k: bench.input("k", &[rows, groups * dim], gather(|s| &s.k, groups * dim)),
            v: bench.input("v", &[rows, groups * dim], gather(|s| &s.v, groups * dim)),
            positions: bench.input("positions", &[rows], positions),
            row_seq: bench.input("row_seq", &[rows], row_seq),
            page_table: bench.input("page_table", &[chunks.len(), self.per_sequence], table),
            k_cache: bench.input("k_cache", &cache_shape, self.k.clone()),
            v_cache: bench.input("v_cache", &cache_shape, self.v.clone()),
        };
        bench.run(append.clone()).expect("good data");
        let attention = PagedAttention {
            q: bench.input("q", &[rows, heads * dim], gather(|s| &s.q, heads * dim)),
            q_gate: bench.input(
                "q_gate",
                &[rows, 2 * heads * dim],
                gather(|s| &s.q_gate, 2 * heads * dim),
            ),
            k_cache: append.k_cache,
            v_cache: append.v_cache,
            positions: append.positions,
            row_seq: append.row_seq,
            page_table: append.page_table,
            out: bench.output("out", &[rows, heads * dim]),
            scale: self.shape.scale(),
        };
        bench.run(attention.clone()).expect("good data");
        self.k = bench.get(append.k_cache).to_vec();
        self.v = bench.get(append.v_cache).to_vec();
        bench.get(attention.out).to_vec()
    }
}

/// One sequence at once, in one page.
fn whole(sequence: &Sequence, length: usize, shape: Shape) -> Vec<bf16> {
    let mut cache = Cache::new(shape, length, &[length], &mut Random::new(0));
    cache.step(
        &[Chunk {
            sequence: 0,
            rows: 0..length,
        }],
        std::slice::from_ref(sequence),
        0,
    )
}

/// Softmax attention in f64 with transformers' roundings of the gate left out.
fn exact(sequence: &Sequence, length: usize, shape: Shape) -> Vec<f64> {
    let Shape { heads, groups, dim } = shape;
    let wide = |x: &bf16| f64::from(x.to_f32());
    let mut out = Vec::new();
    for t in 0..length {
        for h in 0..heads {
            let q = &sequence.q[(t * heads + h) * dim..][..dim];
            let gate = &sequence.q_gate[((t * heads + h) * 2 + 1) * dim..][..dim];
            let at = |rows: &'_ [bf16], p: usize| -> Vec<f64> {
                let group = h * groups / heads;
                rows[(p * groups + group) * dim..][..dim]
                    .iter()
                    .map(wide)
                    .collect()
            };
            let scores: Vec<f64> = (0..=t)
                .map(|p| {
                    q.iter()
                        .zip(at(&sequence.k, p))
                        .map(|(q, k)| wide(q) * k)
                        .sum::<f64>()
                        / (dim as f64).sqrt()
                })
                .collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for (d, gate) in gate.iter().enumerate() {
                let o: f64 = weights
                    .iter()
                    .enumerate()
                    .map(|(p, w)| w * at(&sequence.v, p)[d])
                    .sum();
                out.push(o / sum / (1.0 + (-wide(gate)).exp()));
            }
        }
    }
    out
}

#[test]
fn by_hand() {
    let check = |scores: &[f32], values: &[f32], gate: f32, expect: f32| {
        let keys: Vec<Vec<bf16>> = scores.iter().map(|&s| bs(&[s])).collect();
        let values: Vec<Vec<bf16>> = values.iter().map(|&v| bs(&[v])).collect();
        let keys: Vec<&[bf16]> = keys.iter().map(Vec::as_slice).collect();
        let values: Vec<&[bf16]> = values.iter().map(Vec::as_slice).collect();
        let mut out = [b(0.0)];
        attention_head(&bs(&[1.0]), &keys, &values, &bs(&[gate]), 1.0, &mut out);
        assert_same_bits(&out, &[b(expect)], &format!("{scores:?} {gate}"));
    };
    check(&[3.0], &[5.0], 100.0, 5.0);
    check(&[3.0], &[5.0], 0.0, 2.5);
    check(&[3.0], &[5.0], -200.0, 0.0);
    check(&[1.0, 1.0, 1.0], &[1.0, 2.0, 6.0], 100.0, 3.0);
    check(&[-1e4, 1e4], &[1.0, 2.0], 100.0, 2.0);
    // The maximum in the first block, in the last one, and the same in both.
    let blocks = |first: f32, last: f32| [vec![first; 64], vec![last; 64]].concat();
    let values = blocks(2.0, 4.0);
    check(&blocks(200.0, 0.0), &values, 100.0, 2.0);
    check(&blocks(0.0, 200.0), &values, 100.0, 4.0);
    check(&blocks(-7.0, -7.0), &values, 100.0, 3.0);
    // A NaN or an infinite score is seen, wherever it stands.
    check(&[f32::NAN, 1.0], &[1.0, 2.0], 100.0, f32::NAN);
    check(&blocks(f32::NAN, 1.0), &values, 100.0, f32::NAN);
    check(&blocks(1.0, f32::NAN), &values, 100.0, f32::NAN);
    check(&[f32::INFINITY, 1.0], &[1.0, 2.0], 100.0, f32::NAN);
}

/// The formula of the page, written once more with other means, over three blocks of 64. Every value has
/// its opposite at the same score elsewhere, so that what is left is the rounding of the order.
#[test]
fn has_the_written_order() {
    let (length, dim) = (2 * 70, 40);
    let random = &mut Random::new(25);
    let mut keys: Vec<Vec<bf16>> = (0..70).map(|_| random.bf16s(dim, 1.0)).collect();
    let mut values: Vec<Vec<bf16>> = (0..70).map(|_| random.bf16s(dim, 1.0)).collect();
    keys.extend(keys.clone());
    values.extend(
        values
            .clone()
            .into_iter()
            .map(|v| v.into_iter().map(|x| -x).collect()),
    );
    let (q, gate) = (random.bf16s(dim, 3.0), random.bf16s(dim, 2.0));
    let keys: Vec<&[bf16]> = keys.iter().map(Vec::as_slice).collect();
    let values: Vec<&[bf16]> = values.iter().map(Vec::as_slice).collect();
    let mut out = vec![b(0.0); dim];
    attention_head(&q, &keys, &values, &gate, 0.25, &mut out);

    let written = |size: usize, d: usize| {
        let part = |start: usize| {
            let span = start..(start + size).min(length);
            let s: Vec<f32> = span
                .clone()
                .map(|j| lane_dot_bf16(&q, keys[j]) * 0.25)
                .collect();
            let m = s.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let e: Vec<f32> = s.iter().map(|s| exp(s - m)).collect();
            let o = lane_sum(e.iter().zip(span).map(|(e, j)| e * values[j][d].to_f32()));
            (m, lane_sum(e), o)
        };
        let (mut m, mut l, mut o) = part(0);
        for start in (size..length).step_by(size) {
            let (m_b, l_b, o_b) = part(start);
            let top = m.max(m_b);
            let (c, c_b) = (exp(m - top), exp(m_b - top));
            (m, l, o) = (top, l * c + l_b * c_b, o * c + o_b * c_b);
        }
        let gate = round_bf16(sigmoid(gate[d].to_f32())).to_f32();
        round_bf16(round_bf16(o / l).to_f32() * gate)
    };
    let mut other_block_differs = 0;
    for (d, y) in out.iter().enumerate() {
        assert_same_bits(&[*y], &[written(64, d)], &format!("dim {d}"));
        other_block_differs += usize::from(written(32, d).to_bits() != y.to_bits());
    }
    assert!(other_block_differs > dim / 2, "{other_block_differs}");
}

/// A division and two roundings; the data tells it from a reciprocal and from a single rounding.
#[test]
fn finishes_in_the_written_order() {
    let random = &mut Random::new(31);
    let n = 1 << 20;
    let part = AttentionPart {
        max: 0.0,
        sum: 3.0 + random.f32(2.0),
        out: random.f32s(n, 4.0),
    };
    let gate = random.bf16s(n, 4.0);
    let mut out = vec![b(0.0); n];
    part.finish(&gate, &mut out);
    let (mut reciprocal_differs, mut single_differs) = (0, 0);
    for ((y, o), gate) in out.iter().zip(&part.out).zip(&gate) {
        let gate = sigmoid(gate.to_f32());
        let gated = |o: f32| round_bf16(round_bf16(o).to_f32() * round_bf16(gate).to_f32());
        assert_eq!(y.to_bits(), gated(o / part.sum).to_bits());
        reciprocal_differs += usize::from(gated(o * (1.0 / part.sum)).to_bits() != y.to_bits());
        single_differs += usize::from(round_bf16((o / part.sum) * gate).to_bits() != y.to_bits());
    }
    assert!(
        reciprocal_differs > 0 && single_differs > 0,
        "{reciprocal_differs} {single_differs}"
    );
}

#[test]
fn stays_near_softmax() {
    for shape in [
        SMALL,
        Shape {
            heads: 4,
            groups: 1,
            dim: 33,
        },
        Shape {
            heads: 3,
            groups: 3,
            dim: 8,
        },
    ] {
        let length = 2 * 64 + 3;
        let sequence = Sequence::random(length, shape, &mut Random::new(26));
        let found = whole(&sequence, length, shape);
        for (o, e) in found.iter().zip(exact(&sequence, length, shape)) {
            assert_close(o.to_f32(), e, 1e-2, &format!("{shape:?}"));
        }
    }
}

/// Cases 18 and 20: shuffled pages of every size, over poisoned caches, give the bytes of one page.
#[test]
fn pages_do_not_matter() {
    let lengths = [150, 1, 64, 65];
    let random = &mut Random::new(27);
    let sequences: Vec<Sequence> = lengths
        .iter()
        .map(|&n| Sequence::random(n, SMALL, random))
        .collect();
    let width = SMALL.heads * SMALL.dim;
    let alone: Vec<_> = sequences
        .iter()
        .zip(lengths)
        .map(|(s, n)| whole(s, n, SMALL))
        .collect();
    for page_size in [1, 3, 16, 64, 100] {
        let mut cache = Cache::new(SMALL, page_size, &lengths, random);
        let chunks: Vec<Chunk> = lengths
            .iter()
            .enumerate()
            .map(|(sequence, &n)| Chunk {
                sequence,
                rows: 0..n,
            })
            .collect();
        let out = cache.step(&chunks, &sequences, 2);
        let expect = [alone.concat(), vec![bf16::ZERO; 2 * width]].concat();
        assert_same_bits(&out, &expect, &format!("page size {page_size}"));
    }
}

/// Case 19: a 200-token prompt in the shapes of the field and at every block boundary.
#[test]
fn every_split_of_a_prompt_is_the_same() {
    let sequence = Sequence::random(200, SMALL, &mut Random::new(28));
    let expect = whole(&sequence, 200, SMALL);
    let halves = (1..200).map(|first| vec![first, 200 - first]);
    let shapes = [
        vec![1; 200],
        [vec![70, 30], vec![1; 100]].concat(),
        vec![64, 64, 64, 8],
    ];
    for sizes in halves.chain(shapes) {
        let mut cache = Cache::new(SMALL, 16, &[200], &mut Random::new(29));
        let mut out = Vec::new();
        for rows in ranges(&sizes) {
            let chunk = Chunk { sequence: 0, rows };
            out.extend(cache.step(&[chunk], std::slice::from_ref(&sequence), 0));
        }
        assert_same_bits(&out, &expect, &format!("{sizes:?}"));
    }
}

fn bad_step(positions: &[u32], row_seq: &[u32], pages: &[u32]) -> Result<(), LaunchError> {
    let mut bench = Bench::default();
    let op = two_rows(&mut bench, positions, row_seq, pages);
    bench.run(op)
}

/// Two rows over 3 pages of 2 positions, at most 2 pages a sequence.
fn two_rows(
    bench: &mut Bench,
    positions: &[u32],
    row_seq: &[u32],
    pages: &[u32],
) -> PagedAttention {
    PagedAttention {
        q: bench.input("q", &[2, 4], bs(&[0.0; 8])),
        q_gate: bench.input("q_gate", &[2, 8], bs(&[0.0; 16])),
        k_cache: bench.input("k_cache", &[3, 2, 1, 2], bs(&[0.0; 12])),
        v_cache: bench.input("v_cache", &[3, 2, 1, 2], bs(&[0.0; 12])),
        positions: bench.input("positions", &[2], positions.to_vec()),
        row_seq: bench.input("row_seq", &[2], row_seq.to_vec()),
        page_table: bench.input("page_table", &[pages.len() / 2, 2], pages.to_vec()),
        out: bench.output("out", &[2, 4]),
        scale: 1.0,
    }
}

#[test]
fn refuses_what_points_nowhere() {
    bad_step(&[0, 3], &[0, 1], &[0, NONE, 2, 1]).expect("good data");
    bad_step(&[0, 99], &[0, NONE], &[0, NONE]).expect("an inert row may point anywhere");
    let check = |positions: &[u32], row_seq: &[u32], pages: &[u32], fragments: &[&str]| {
        assert_refused(bad_step(positions, row_seq, pages), fragments);
    };
    check(
        &[0, 0],
        &[0, 1],
        &[0, 1],
        &["sequence of row 1 is 1", "1 sequences"],
    );
    check(
        &[0, 4],
        &[0, 0],
        &[0, 1],
        &["position in sequence 0 is 4", "below 4"],
    );
    check(
        &[0, u32::MAX],
        &[0, 0],
        &[0, 1],
        &["position in sequence 0", "below 4"],
    );
    check(
        &[0, 3],
        &[0, 0],
        &[0, 3],
        &["page 1 of sequence 0 is 3", "3 pages"],
    );
    check(
        &[0, 3],
        &[0, 1],
        &[0, 0, NONE, 1],
        &["page 0 of sequence 1 is 4294967295"],
    );
}

#[test]
fn refuses_shapes_and_parameters_by_name() {
    let mut bench = Bench::default();
    let op = two_rows(&mut bench, &[0, 0], &[0, 0], &[0, 1]);
    bench.check(op.clone()).expect("good shapes");
    for scale in [0.0, -1.0, f32::INFINITY] {
        assert_refused(
            bench.check(PagedAttention {
                scale,
                ..op.clone()
            }),
            &["paged_attention", "scale"],
        );
    }
    let q_gate = bench.input("gates alone", &[2, 4], bs(&[0.0; 8]));
    assert_refused(
        bench.check(PagedAttention {
            q_gate,
            ..op.clone()
        }),
        &["gates alone", "[2, 8]"],
    );
    let groups = bench.input("three groups", &[3, 2, 3, 2], bs(&[0.0; 36]));
    let wrong = PagedAttention {
        k_cache: groups,
        v_cache: groups,
        ..op.clone()
    };
    assert_refused(bench.check(wrong), &["buffer q", "multiple of 3"]);
    let v_cache = bench.input("other pages", &[2, 2, 1, 2], bs(&[0.0; 8]));
    assert_refused(
        bench.check(PagedAttention { v_cache, ..op }),
        &["other pages", "[3, 2, 1, 2]"],
    );
}

#[test]
fn moves_only_the_pages_it_names() {
    let mut bench = Bench::default();
    let op = two_rows(&mut bench, &[0, 0], &[0, 0], &[0, 1]);
    let min = 2 * (8 + 16 + 8) + 4 * (2 + 2 + 2);
    let page = 2 * (2 * 2) * 2;
    assert_eq!(
        op.traffic(&bench.table),
        Traffic {
            min,
            max: min + 2 * page
        }
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Cases 18 to 20 at once: any chunks, any company, any pages.
    #[test]
    fn any_schedule_equals_alone(
        seed: u64,
        lengths in proptest::collection::vec(1usize..140, 1..4),
        page_size in prop::sample::select(vec![1usize, 3, 16, 64, 100]),
    ) {
        let random = &mut Random::new(seed);
        let sequences: Vec<Sequence> = lengths.iter().map(|&n| Sequence::random(n, SMALL, random)).collect();
        let mut cache = Cache::new(SMALL, page_size, &lengths, random);
        let mut found = vec![Vec::new(); lengths.len()];
        let width = SMALL.heads * SMALL.dim;
        for chunks in random_steps(&lengths, random).into_iter().filter(|c| !c.is_empty()) {
            let inert = random.below(3);
            let out = cache.step(&chunks, &sequences, inert);
            let sizes: Vec<usize> = chunks.iter().map(|c| c.rows.len()).collect();
            for (chunk, rows) in chunks.iter().zip(ranges(&sizes)) {
                found[chunk.sequence].extend(&out[rows.start * width..rows.end * width]);
            }
        }
        for ((found, sequence), &length) in found.iter().zip(&sequences).zip(&lengths) {
            assert_same_bits(found, &whole(sequence, length, SMALL), &format!("{lengths:?} {page_size}"));
        }
    }
}
