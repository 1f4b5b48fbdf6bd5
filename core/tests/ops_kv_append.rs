//! Keys and values into pages.

mod common;

use common::{Bench, Random, assert_refused, assert_same_bits, b, bs};
use layerlet_core::NONE;
use layerlet_core::launch::{LaunchError, Operation, Traffic};
use layerlet_core::numerics::bf16;
use layerlet_core::ops::KvAppend;

/// Caches of 5 pages of 3 positions, one group of 2 dims; two sequences of at most 2 pages.
const PAGES: [u32; 4] = [4, 0, 2, NONE];

fn op(bench: &mut Bench, positions: &[u32], row_seq: &[u32]) -> KvAppend {
    let rows = positions.len();
    let values =
        |sign: f32| -> Vec<bf16> { (0..2 * rows).map(|i| b(sign * (1.0 + i as f32))).collect() };
    KvAppend {
        k: bench.input("k", &[rows, 2], values(1.0)),
        v: bench.input("v", &[rows, 2], values(-1.0)),
        positions: bench.input("positions", &[rows], positions.to_vec()),
        row_seq: bench.input("row_seq", &[rows], row_seq.to_vec()),
        page_table: bench.input("page_table", &[2, 2], PAGES.to_vec()),
        k_cache: bench.input("k_cache", &[5, 3, 1, 2], bs(&[0.0; 30])),
        v_cache: bench.input("v_cache", &[5, 3, 1, 2], bs(&[0.0; 30])),
    }
}

/// Runs, and returns the caches' rows that are not zero any more, with the input row each now holds.
fn append(positions: &[u32], row_seq: &[u32]) -> Result<Vec<(usize, usize)>, LaunchError> {
    let mut bench = Bench::default();
    let op = op(&mut bench, positions, row_seq);
    let result = bench.run(op.clone());
    let mut places = Vec::new();
    for (place, (k, v)) in bench
        .get(op.k_cache)
        .chunks(2)
        .zip(bench.get(op.v_cache).chunks(2))
        .enumerate()
    {
        let first = k[0].to_f32();
        if first != 0.0 {
            assert_same_bits(k, &bs(&[first, first + 1.0]), "k row");
            assert_same_bits(v, &bs(&[-first, -first - 1.0]), "v row");
            places.push((place, (first as usize - 1) / 2));
        } else {
            assert_same_bits(&[k, v].concat(), &bs(&[0.0; 4]), "an untouched place");
        }
    }
    if result.is_err() {
        assert!(places.is_empty(), "a refused step must write nothing");
    }
    result.map(|()| places)
}

#[test]
fn every_row_finds_its_place() {
    let check = |positions: &[u32], row_seq: &[u32], expect: &[(usize, usize)]| {
        let found = append(positions, row_seq).expect("good data");
        assert_eq!(found, expect, "{positions:?} {row_seq:?}");
    };
    // Sequence 0 lies in pages 4 and 0, sequence 1 in page 2.
    check(&[0], &[0], &[(12, 0)]);
    check(&[2, 3], &[0, 0], &[(0, 1), (14, 0)]);
    check(&[5, 1], &[0, 1], &[(2, 0), (7, 1)]);
    // Inert rows write nothing, wherever they point.
    check(&[1, 99, 0], &[1, NONE, NONE], &[(7, 0)]);
    check(&[], &[], &[]);
}

#[test]
fn refuses_what_points_nowhere() {
    let check = |positions: &[u32], row_seq: &[u32], fragments: &[&str]| {
        assert_refused(append(positions, row_seq).map(|_| ()), fragments);
    };
    check(&[0, 0], &[0, 2], &["sequence of row 1 is 2", "2 sequences"]);
    check(
        &[0, 6],
        &[0, 0],
        &["position in sequence 0 is 6", "below 6"],
    );
    check(
        &[0, u32::MAX],
        &[0, 0],
        &["position in sequence 0", "below 6"],
    );
    check(
        &[0, 3],
        &[0, 1],
        &["page 1 of sequence 1 is 4294967295", "5 pages"],
    );
    check(
        &[1, 4, 1],
        &[0, 0, 0],
        &["position of row 2 in sequence 0 is 1", "no other row"],
    );
}

#[test]
fn heads_and_pages_of_any_size_keep_their_rows() {
    let (groups, dim, pages, length) = (3, 5, 20, 137usize);
    for page_size in [1, 3, 16, 64, 100] {
        let random = &mut Random::new(page_size as u64);
        let per_sequence = length.div_ceil(page_size);
        let pages = pages.max(per_sequence);
        let order = random.permutation(pages);
        let (k, v) = (
            random.bf16s(length * groups * dim, 1.0),
            random.bf16s(length * groups * dim, 1.0),
        );
        let mut bench = Bench::default();
        let cache = vec![b(f32::NAN); pages * page_size * groups * dim];
        let op = KvAppend {
            k: bench.input("k", &[length, groups * dim], k.clone()),
            v: bench.input("v", &[length, groups * dim], v.clone()),
            positions: bench.input("positions", &[length], (0..length as u32).collect()),
            row_seq: bench.input("row_seq", &[length], vec![0; length]),
            page_table: bench.input(
                "page_table",
                &[1, per_sequence],
                order[..per_sequence].to_vec(),
            ),
            k_cache: bench.input("k_cache", &[pages, page_size, groups, dim], cache.clone()),
            v_cache: bench.input("v_cache", &[pages, page_size, groups, dim], cache),
        };
        bench.run(op.clone()).expect("good data");
        for (rows, cache) in [(k, bench.get(op.k_cache)), (v, bench.get(op.v_cache))] {
            for (p, row) in rows.chunks_exact(groups * dim).enumerate() {
                let place = order[p / page_size] as usize * page_size + p % page_size;
                let found = &cache[place * groups * dim..][..groups * dim];
                assert_same_bits(found, row, &format!("page size {page_size}, position {p}"));
            }
            let written = cache.iter().filter(|x| !x.is_nan()).count();
            assert_eq!(written, length * groups * dim);
        }
    }
}

#[test]
fn refuses_shapes_by_name() {
    let mut bench = Bench::default();
    let op = op(&mut bench, &[0, 1], &[0, 0]);
    bench.check(op.clone()).expect("good shapes");
    let v_cache = bench.input("other pages", &[5, 2, 1, 2], bs(&[0.0; 20]));
    assert_refused(
        bench.check(KvAppend {
            v_cache,
            ..op.clone()
        }),
        &["kv_append", "other pages", "[5, 3, 1, 2]"],
    );
    let k_cache = bench.input("no room", &[5, 0, 1, 2], vec![]);
    assert_refused(
        bench.check(KvAppend {
            k_cache,
            ..op.clone()
        }),
        &["no room", "only pages may be 0"],
    );
    let v = bench.input("wide", &[2, 4], bs(&[0.0; 8]));
    assert_refused(bench.check(KvAppend { v, ..op }), &["wide", "[2, 2]"]);
}

#[test]
fn moves_only_the_rows_it_appends() {
    let mut bench = Bench::default();
    let op = op(&mut bench, &[0, 1], &[0, 0]);
    let (rows, indices) = (2 * 2 * 2 * 2, (2 + 2 + 4) * 4);
    let expect = Traffic {
        min: rows + indices,
        max: 2 * rows + indices,
    };
    assert_eq!(op.traffic(&bench.table), expect);
}
