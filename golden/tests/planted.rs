//! What golden says of backends with a planted fault.

mod common;

use common::{OneMemory, Planted};
use layerlet_core::backend::Backend;
use layerlet_core::launch::{Launch, LaunchError};
use layerlet_core::memory::Memory;
use layerlet_core::reference::Reference;
use layerlet_golden::checks::fixtures::{Scope, check, reference};
use layerlet_golden::checks::verdict;
use layerlet_golden::fixture::Fixture;
use layerlet_golden::report::Report;
use layerlet_golden::run::{POISONS, run};

fn fixture(name: &str) -> Fixture {
    let path = layerlet_golden::folder().join("fixtures").join(name);
    Fixture::load(&path).unwrap()
}

fn check_on(backend: &dyn Backend, name: &str) -> Report {
    let scope = Scope {
        backends: &[backend],
        seeds: 1,
        shift: 0,
        pins: None,
        sweep: false,
        wording: true,
    };
    check(&fixture(name), &scope).unwrap()
}

/// One code too large, in the first of two stages.
fn wrong_code(launch: &Launch, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
    match launch {
        Launch::Fused(fused) => fused.stages.iter().try_for_each(|s| wrong_code(s, memory)),
        Launch::QuantizeRows(op) => {
            launch.run(memory)?;
            memory.get_mut(op.codes)[5 * 33 + 7] += 1;
            Ok(())
        }
        other => other.run(memory),
    }
}

#[test]
fn a_mismatch_names_everything_that_is_needed_to_find_it() {
    let report = check_on(&Planted(wrong_code), "quantize_linear/one_linear.toml");
    let fused = report.mismatches.iter().find(|m| m.variant == "fused");
    let text = fused.expect("a mismatch of the fused kernel").to_string();
    println!("{text}");
    let parts = [
        // Operation, variant, backend, input.
        "quantize_linear (fused) on planted, quantize_linear/one_linear seed 2",
        // The stage, with the values in hexadecimal and decimal.
        "first stage that differs: 0, quantize_rows: codes [19, 33]: 1 of 627 differ, \
         first at [5, 7]: expected 0x04 (4), found 0x05 (5)",
        // What was seen outside: buffer, shape, count, first index in each dimension.
        "out [19, 301]: ",
        " of 5719 differ, first at [5, ",
        "expected 0x",
        " ulp (at most ",
    ];
    for part in parts {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
    let staged = report.rows.iter().find(|r| r.variant == "staged").unwrap();
    assert_eq!(
        (staged.mismatches, staged.backend.as_str()),
        (staged.cases, "planted")
    );
}

#[test]
fn the_same_report_serves_machines() {
    let report = check_on(&Planted(wrong_code), "quantize_linear/one_linear.toml");
    let json = serde_json::to_value(&report).unwrap();
    let kept = json["mismatches"].as_array().unwrap();
    let kept = kept.iter().find(|m| m["variant"] == "kept").unwrap();
    let difference = &kept["difference"];
    assert_eq!(difference["buffer"], "codes");
    assert_eq!(difference["first"], serde_json::json!([5, 7]));
    assert_eq!(difference["expected"]["value"], 4.0);
    assert_eq!(difference["found"]["bits"], 5);
    assert_eq!(difference["ulps"], serde_json::Value::Null);
}

/// Leaves the last row as it was.
fn dropped_tail(launch: &Launch, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
    let Launch::RmsNorm(op) = launch else {
        return launch.run(memory);
    };
    let before = memory.get(op.out).to_vec();
    launch.run(memory)?;
    let width = memory.get(op.weight).len();
    let tail = before.len() - width;
    memory.get_mut(op.out)[tail..].copy_from_slice(&before[tail..]);
    Ok(())
}

#[test]
fn poison_shows_what_nobody_wrote() {
    let report = check_on(&Planted(dropped_tail), "rms_norm/order.toml");
    let kernel = report.mismatches.iter().filter(|m| m.variant == "kernel");
    let found: Vec<String> = kernel.map(ToString::to_string).collect();
    // Both poisons: an ordinary number, and NaN.
    assert_eq!(found.len(), POISONS.len(), "{found:?}");
    assert!(found[0].contains("found 0xaaaa"), "{}", found[0]);
    assert!(found[1].contains("NaN"), "{}", found[1]);
    // A device that tests itself by the fixture it carries sees it too.
    assert!(report.mismatches.iter().any(|m| m.variant == "carried"));
}

/// Case 13: results that a later call overwrites.
#[test]
fn results_are_read_after_a_later_call() {
    let fixture = fixture("rms_norm/rows.toml");
    let case = fixture.case(1).unwrap();
    let later = fixture.case(2).unwrap();
    let expected = reference(&case, &later).unwrap();
    let right = |later| verdict(&expected, run(&OneMemory, &case, later, POISONS[0])).is_ok();
    assert!(right(&case), "the same call again hides the fault");
    assert!(!right(&later));
    let report = check_on(&OneMemory, "rms_norm/rows.toml");
    assert!(!report.mismatches.is_empty());
}

/// Rounds the angle's position down to the table instead of refusing it.
fn lenient(launch: &Launch, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
    match launch {
        Launch::Rope(_) => Ok(()),
        other => other.run(memory),
    }
}

#[test]
fn a_backend_must_refuse_what_the_reference_refuses() {
    let name = "rope/stray_position.toml";
    let report = check_on(&Planted(lenient), name);
    let text = report.mismatches[0].to_string();
    assert!(text.contains("rope (refused) on planted"), "{text}");
    assert!(text.contains("runs, the reference refuses it"), "{text}");
    assert!(check_on(&Reference, name).mismatches.is_empty());
}

#[test]
fn a_run_that_shows_nothing_is_no_success() {
    let fixture = fixture("rms_norm/order.toml");
    let case = fixture.case(1).unwrap();
    let expected = reference(&case, &case).unwrap();
    let found: Result<_, String> = Ok(Vec::new());
    let failure = verdict(&expected, found).unwrap_err();
    assert!(
        failure
            .message
            .unwrap()
            .contains("none of the expected buffers")
    );
}
