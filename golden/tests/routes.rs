//! Route fuzzing finds planted faults, makes them small and keeps them; route files say what is wrong
//! with them.

mod common;

use common::Planted;
use layerlet_core::backend::Backend;
use layerlet_core::launch::{Launch, LaunchError};
use layerlet_core::memory::Memory;
use layerlet_core::numerics::bf16;
use layerlet_core::reference::Reference;
use layerlet_golden::checks::routes::{Kind, Route, Scope, check_folder, check_kind};
use std::path::Path;

/// Rows of one expert beyond these are lost.
const TILE: usize = 5;

/// A grouped linear that forgets the second tile of an expert.
fn one_tile(launch: &Launch, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
    let (offsets, out) = match launch {
        Launch::Fused(fused) => return fused.stages.iter().try_for_each(|s| one_tile(s, memory)),
        Launch::GroupedLinearW8A8(op) => (op.offsets, op.out),
        Launch::GroupedLinearBf16(op) => (op.offsets, op.out),
        other => return other.run(memory),
    };
    launch.run(memory)?;
    let [_, n] = memory.dims(out);
    let offsets: Vec<usize> = memory.get(offsets).iter().map(|o| *o as usize).collect();
    for rows in offsets.windows(2).filter(|rows| rows[1] - rows[0] > TILE) {
        memory.get_mut(out)[(rows[0] + TILE) * n..rows[1] * n].fill(bf16::ZERO);
    }
    Ok(())
}

fn scope<'a>(backends: &'a [&'a dyn Backend], regressions: &'a Path) -> Scope<'a> {
    Scope {
        backends,
        cases: 20,
        seed: 0,
        regressions: Some(regressions),
    }
}

#[test]
fn a_fault_shrinks_to_the_smallest_route_and_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("routes.jsonl");
    let planted = Planted(one_tile);
    let backends: [&dyn Backend; 1] = [&planted];
    let report = check_kind(Kind::Hot, &scope(&backends, &file)).unwrap();
    assert!(!report.mismatches.is_empty());
    let kept = Route::read_file(&file).unwrap();
    assert_eq!(kept.len(), 1);
    let (tokens, k, experts) = (kept[0].tokens(), kept[0].k(), kept[0].experts());
    assert_eq!((tokens, k, experts), (TILE + 1, 1, 1), "{}", kept[0]);
    // The report shows the same line, to be run again.
    let text = report.mismatches[0].to_string();
    assert!(text.contains(&kept[0].to_string()), "{text}");
    assert!(text.contains("routes, hot"), "{text}");
    // Found again it is not kept twice; repaired it passes.
    check_kind(Kind::Hot, &scope(&backends, &file)).unwrap();
    assert_eq!(Route::read_file(&file).unwrap(), kept);
    let again = check_folder(dir.path(), "routes, regressions", &backends).unwrap();
    assert!(!again.mismatches.is_empty());
    let repaired = check_folder(dir.path(), "routes, regressions", &[&Reference]).unwrap();
    assert!(repaired.mismatches.is_empty() && repaired.cases() > 0);
}

#[test]
fn the_same_seed_makes_the_same_routes() {
    let file = |seed| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("routes.jsonl");
        let planted = Planted(one_tile);
        let backends: [&dyn Backend; 1] = [&planted];
        let scope = Scope {
            seed,
            ..scope(&backends, &path)
        };
        check_kind(Kind::Uniform, &scope).unwrap();
        Route::read_file(&path).unwrap()
    };
    assert_eq!(file(1), file(1));
}

#[test]
fn a_route_file_says_where_it_is_wrong() {
    let good = r#"{"layer":3,"topk_ids":[[1,0],[2,-1]],"topk_weights":[[0.5,0.5],[1,0]]}"#;
    let route = Route::parse(good).unwrap();
    assert_eq!((route.tokens(), route.k(), route.experts()), (2, 2, 3));
    assert_eq!(Route::parse(&route.to_string()).unwrap(), route);
    let faults = [
        ("{", "EOF"),
        (r#"{"topk_ids":[],"topk_weights":[]}"#, "layer"),
        (
            r#"{"layer":0,"ids":[],"topk_weights":[]}"#,
            "unknown field `ids`",
        ),
        (
            r#"{"layer":0,"topk_ids":[[0]],"topk_weights":[]}"#,
            "topk_weights has 0 tokens, topk_ids 1",
        ),
        (
            r#"{"layer":0,"topk_ids":[[0],[0,1]],"topk_weights":[[1],[1]]}"#,
            "token 1 has 2 ids and 1 weights, expected 1",
        ),
        (
            r#"{"layer":0,"topk_ids":[[-2]],"topk_weights":[[1]]}"#,
            "token 0: id -2, expected -1 to 0",
        ),
        (
            r#"{"layer":0,"experts":4,"topk_ids":[[4]],"topk_weights":[[1]]}"#,
            "token 0: id 4, expected -1 to 3",
        ),
        (
            r#"{"layer":0,"topk_ids":[[0]],"topk_weights":[[1]],"row_scale":[1,2]}"#,
            "row_scale has 2 tokens, topk_ids 1",
        ),
    ];
    let dir = tempfile::tempdir().unwrap();
    for (line, expected) in faults {
        let path = dir.path().join("captured.jsonl");
        std::fs::write(&path, format!("{good}\n\n{line}\n")).unwrap();
        let error = Route::read_folder(dir.path()).unwrap_err().to_string();
        assert!(error.contains("captured.jsonl:3: "), "{error}");
        assert!(error.contains(expected), "no {expected:?} in {error}");
    }
}
