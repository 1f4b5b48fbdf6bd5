//! The invariances of a whole model are checks that fail.

mod common;

use common::Planted;
use layerlet_core::backend::Backend;
use layerlet_core::launch::{Launch, LaunchError};
use layerlet_core::memory::Memory;
use layerlet_core::numerics::bf16;
use layerlet_golden::checks::model::{
    Long, Scope, TRAINED, Vary, check_long, check_ranks, check_trained, check_ways,
};
use std::sync::atomic::{AtomicUsize, Ordering};

fn scope<'a>(backends: &'a [&'a dyn Backend]) -> Scope<'a> {
    Scope {
        backends,
        cases: 2,
        seed: 0,
        long: Long {
            tokens: 20,
            runs: 4,
        },
    }
}

/// Changes the first element that a norm writes where `wrong` says so of its number of rows.
fn norm(
    launch: &Launch,
    memory: &mut Memory<'_>,
    wrong: fn(usize) -> bool,
) -> Result<(), LaunchError> {
    match launch {
        Launch::Fused(fused) => fused.stages.iter().try_for_each(|s| norm(s, memory, wrong)),
        Launch::AddRmsNorm(op) => {
            launch.run(memory)?;
            let [rows, _] = memory.dims(op.out);
            if wrong(rows) {
                let first = &mut memory.get_mut(op.out)[0];
                *first = bf16::from_bits(first.to_bits() ^ 1);
            }
            Ok(())
        }
        other => other.run(memory),
    }
}

/// One bit, and only where a step has one row: decode differs from prefill.
fn decode_differs(launch: &Launch, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
    norm(launch, memory, |rows| rows == 1)
}

/// One bit, every tenth time.
fn race(launch: &Launch, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    norm(launch, memory, |_| {
        CALLS.fetch_add(1, Ordering::Relaxed) % 10 == 9
    })
}

#[test]
fn a_split_that_shows_is_found_in_the_first_layer_that_it_touches() {
    let planted = Planted(decode_differs);
    let backends: [&dyn Backend; 1] = [&planted];
    let report = check_ways(Vary::Split, &scope(&backends));
    let mine: Vec<_> = report
        .mismatches
        .iter()
        .filter(|m| m.backend == "planted")
        .collect();
    assert!(!mine.is_empty());
    assert!(
        report.mismatches.len() == mine.len(),
        "the reference is right"
    );
    let difference = mine[0].difference.as_ref().unwrap();
    // The norm before layer 1 is the first one that differs.
    assert!(difference.buffer.starts_with("layers.1."), "{}", mine[0]);
    assert!(mine[0].case.contains("way 0"), "{}", mine[0]);
}

/// A residual stream kept in too small a format: rows of the trained model leave it, those of the random
/// one never do.
fn saturates(launch: &Launch, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
    const LARGEST: f32 = 30.0;
    match launch {
        Launch::Fused(fused) => fused.stages.iter().try_for_each(|s| saturates(s, memory)),
        Launch::AddRmsNorm(op) => {
            launch.run(memory)?;
            for x in memory.get_mut(op.sum) {
                *x = bf16::from_f32(x.to_f32().clamp(-LARGEST, LARGEST));
            }
            Ok(())
        }
        other => other.run(memory),
    }
}

/// Whether anything is found on the planted backend, and nothing but there.
fn found(report: &layerlet_golden::report::Report) -> bool {
    let planted = |backend: &str| backend == "planted";
    assert!(report.rows.iter().any(|row| planted(&row.backend)));
    assert!(report.mismatches.iter().all(|m| planted(&m.backend)));
    !report.mismatches.is_empty()
}

#[test]
fn trained_weights_find_faults_too_and_some_that_random_ones_do_not() {
    let scope_of = |planted| check_trained(TRAINED[0], &scope(&[planted]));
    assert!(found(&scope_of(&Planted(decode_differs))));
    assert!(found(&scope_of(&Planted(saturates))));
    let saturates = Planted(saturates);
    let random = check_ways(Vary::Split, &scope(&[&saturates]));
    assert!(!found(&random));
}

/// Every family reads its model and its texts; the reference agrees with itself.
#[test]
fn every_trained_family_runs() {
    for trained in TRAINED {
        let planted = Planted(|launch, memory| launch.run(memory));
        let report = check_trained(trained, &scope(&[&planted]));
        assert!(!found(&report), "{}", report.mismatches[0]);
        let variants = report.rows.iter().map(|row| row.variant.as_str());
        assert!(variants.eq([trained.variant().as_str(); 2]));
    }
}

#[test]
fn a_race_shows_in_repeated_runs() {
    let planted = Planted(race);
    let backends: [&dyn Backend; 1] = [&planted];
    let report = check_long(&scope(&backends));
    assert_eq!(report.rows[0].variant, "20 tokens, 4 runs");
    assert_eq!(report.rows[0].cases, 4);
    assert!(!report.mismatches.is_empty());
    let report = check_ways(Vary::Repeated, &scope(&backends));
    assert!(!report.mismatches.is_empty());
}

/// One bit in the decode step of [`check_ranks`], whose bucket has a spare row.
fn second_step_differs(launch: &Launch, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
    norm(launch, memory, |rows| rows == 2)
}

#[test]
fn ranks_that_differ_are_found() {
    let planted = Planted(second_step_differs);
    let backends: [&dyn Backend; 1] = [&planted];
    let report = check_ranks(&scope(&backends));
    for row in report.rows.iter().filter(|r| r.backend == "planted") {
        assert!(row.mismatches > 0, "{row:?}");
    }
}
