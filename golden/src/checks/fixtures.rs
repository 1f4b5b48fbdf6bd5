//! A fixture on every backend: pinned reference, kernels, fused kernels with their stages.

use super::{Failure, agree, carried, verdict};
use crate::case::Case;
use crate::compare::compare;
use crate::fixture::{Fixture, FixtureError};
use crate::report::Report;
use crate::run::{POISONS, Written, run};
use crate::snapshot::{self, Pin};
use layerlet_core::backend::{Backend, BackendError};
use layerlet_core::launch::{Access, Launch};
use layerlet_core::reference::Reference;
use std::path::Path;

/// Distance of the seed of the call that runs between a call and the reading of its results.
const LATER: u64 = 1000;

/// What a fixture is checked with.
pub struct Scope<'a> {
    /// Everything but the reference.
    pub backends: &'a [&'a dyn Backend],
    /// Seeds of each fixture, the pinned one first.
    pub seeds: u64,
    /// Added to every seed but the pinned ones.
    pub shift: u64,
    /// Folder of the pins; none leaves them alone.
    pub pins: Option<&'a Path>,
    /// Run the sizes of sweeps.
    pub sweep: bool,
    /// Refusals say what the reference says, not just no.
    pub wording: bool,
}

/// Runs everything that a fixture asks for.
pub fn check(fixture: &Fixture, scope: &Scope<'_>) -> Result<Report, FixtureError> {
    let mut report = Report::default();
    for n in 0..scope.seeds {
        let shift = if n == 0 { 0 } else { scope.shift };
        let seed = fixture.seed().wrapping_add(n).wrapping_add(shift);
        let case = fixture.case(seed)?;
        let later = fixture.case(seed.wrapping_add(LATER))?;
        check_case(fixture, &case, &later, n == 0, scope, &mut report);
    }
    if let Some(sweep) = fixture.sweep.as_ref().filter(|_| scope.sweep) {
        let later = fixture.case(fixture.seed().wrapping_add(LATER))?;
        let names = fixture.swept_rows(sweep);
        let mut first: Vec<(String, Vec<Written>)> = Vec::new();
        for value in sweep.from..=sweep.to {
            let case = fixture.swept(sweep, value)?;
            check_size(
                &case,
                &later,
                (&names, value),
                &mut first,
                scope,
                &mut report,
            );
        }
    }
    Ok(report)
}

fn check_case(
    fixture: &Fixture,
    case: &Case,
    later: &Case,
    pinned: bool,
    scope: &Scope<'_>,
    report: &mut Report,
) {
    let expected = match reference(case, later) {
        Ok(expected) => expected,
        Err(e) => return check_refusal(fixture, case, later, &e, scope, report),
    };
    if let Some(wanted) = &fixture.refused {
        let message = format!("runs, but must be refused with {wanted:?}");
        report.fail(case, "pinned", "reference", message);
        return;
    }
    let poisoned = run(&Reference, &case.staged(), &later.staged(), POISONS[1]);
    report.check(case, "poison", "reference", verdict(&expected, poisoned));
    if let Some(folder) = scope.pins.filter(|_| pinned) {
        pin(fixture, case, &expected, folder, report);
    }
    if pinned {
        carried::check(case, &expected, scope.backends, report);
    }
    for backend in scope.backends {
        let poisons = if pinned { &POISONS[..] } else { &POISONS[..1] };
        check_backend(case, later, &expected, *backend, poisons, report);
    }
}

/// The bytes that all must give, every intermediate included.
pub fn reference(case: &Case, later: &Case) -> Result<Vec<Written>, BackendError> {
    run(&Reference, &case.staged(), &later.staged(), POISONS[0])
}

/// Every form of a case on one backend.
pub fn check_backend(
    case: &Case,
    later: &Case,
    expected: &[Written],
    backend: &dyn Backend,
    poisons: &[u8],
    report: &mut Report,
) {
    let name = backend.identity().backend;
    for &poison in poisons {
        if !case.is_fused() {
            let found = verdict(expected, run(backend, case, later, poison));
            report.check(case, "kernel", &name, found);
            continue;
        }
        for (variant, keep) in [("fused", false), ("kept", true)] {
            let (case, later) = (case.keeping(keep), later.keeping(keep));
            let mut found = verdict(expected, run(backend, &case, &later, poison));
            if let Err(failure) = &mut found {
                failure.stage = bisect(&case, &later, expected, backend, poison);
            }
            report.check(&case, variant, &name, found);
        }
        let found = run(backend, &case.staged(), &later.staged(), poison);
        report.check(case, "staged", &name, verdict(expected, found));
    }
}

/// Runs a fused case with its intermediates kept and names the first stage that differs.
pub fn bisect(
    case: &Case,
    later: &Case,
    expected: &[Written],
    backend: &dyn Backend,
    poison: u8,
) -> Option<String> {
    let kept = case.keeping(true);
    let found = run(backend, &kept, &later.keeping(true), poison).ok()?;
    for launch in &kept.plan.launches {
        let stages = match launch {
            Launch::Fused(fused) => fused.stages.as_slice(),
            other => std::slice::from_ref(other),
        };
        for (n, stage) in stages.iter().enumerate() {
            let operands = stage.operands();
            let written = operands.iter().filter(|o| o.access != Access::Read);
            for operand in written {
                let name = &kept.decl(operand.buffer).name;
                let mine: Vec<Written> = expected
                    .iter()
                    .filter(|w| w.decl.name == *name)
                    .cloned()
                    .collect();
                if let Some(difference) = compare(&mine, &found) {
                    return Some(format!("{n}, {}: {difference}", stage.name()));
                }
            }
        }
    }
    Some("none when every intermediate is kept".into())
}

fn check_refusal(
    fixture: &Fixture,
    case: &Case,
    later: &Case,
    error: &BackendError,
    scope: &Scope<'_>,
    report: &mut Report,
) {
    let found = error.to_string();
    let wanted = fixture.refused.as_deref();
    if !wanted.is_some_and(|wanted| found.contains(wanted)) {
        let message = format!("{found}\nexpected {}", wanted.unwrap_or("no error"));
        report.fail(case, "refused", "reference", message);
        return;
    }
    report.check(case, "refused", "reference", Ok(()));
    for backend in scope.backends {
        let name = backend.identity().backend;
        let found = match run(*backend, case, later, POISONS[0]) {
            Err(_) if !scope.wording => Ok(()),
            Err(e) if wanted.is_some_and(|wanted| e.to_string().contains(wanted)) => Ok(()),
            Err(e) => Err(Failure::message(format!(
                "refuses with {e}, the reference with {found}"
            ))),
            Ok(_) => Err(Failure::message(format!(
                "runs, the reference refuses it: {found}"
            ))),
        };
        report.check(case, "refused", &name, found);
    }
}

fn pin(fixture: &Fixture, case: &Case, expected: &[Written], folder: &Path, report: &mut Report) {
    let message = match snapshot::check(folder, &fixture.name, expected) {
        Ok(Pin::Same) => None,
        Ok(Pin::New) => {
            report.new_pins.push(fixture.name.clone());
            None
        }
        Ok(Pin::Changed { expected, found }) => Some(format!(
            "the reference gives other bytes than pinned\npinned: {expected}\nfound:  {found}"
        )),
        Err(e) => Some(format!(
            "{}: {e}",
            snapshot::path(folder, &fixture.name).display()
        )),
    };
    match message {
        None => report.check(case, "pinned", "reference", Ok(())),
        Some(message) => report.fail(case, "pinned", "reference", message),
    }
}

/// One size of a sweep: right bytes, and the first row as at the first size (`rows`), where there is a
/// buffer whose rows the swept dimension counts; else the bytes alone (`sizes`).
fn check_size(
    case: &Case,
    later: &Case,
    (names, value): (&[&str], usize),
    first: &mut Vec<(String, Vec<Written>)>,
    scope: &Scope<'_>,
    report: &mut Report,
) {
    let expected = match reference(case, later) {
        Ok(expected) => expected,
        Err(e) => return report.fail(case, "rows", "reference", e.to_string()),
    };
    let variant = match first_rows(&expected, names).is_empty() {
        true => "sizes",
        false => "rows",
    };
    let reference: &dyn Backend = &Reference;
    for backend in std::iter::once(&reference).chain(scope.backends) {
        let name = backend.identity().backend;
        let poison = POISONS[value % POISONS.len()];
        let found = run(*backend, case, later, poison);
        let rows = found.as_ref().map(|w| first_rows(w, names));
        let mut found = match rows {
            Ok(rows) => match first.iter().find(|(backend, _)| *backend == name) {
                Some((_, before)) => agree(before, &rows),
                None => {
                    first.push((name.clone(), rows));
                    Ok(())
                }
            },
            Err(_) => Ok(()),
        }
        .and_then(|()| verdict(&expected, found));
        if let Err(failure) = &mut found {
            failure.stage = case
                .is_fused()
                .then(|| bisect(case, later, &expected, *backend, poison))
                .flatten();
        }
        report.check(case, variant, &name, found);
    }
}

fn first_rows(written: &[Written], names: &[&str]) -> Vec<Written> {
    let of_rows = |w: &&Written| names.contains(&w.decl.name.as_str());
    written
        .iter()
        .filter(of_rows)
        .map(|w| {
            let mut first = w.clone();
            let rows = std::mem::replace(&mut first.decl.shape[0], 1);
            first.bytes.truncate(w.bytes.len() / rows.max(1));
            first
        })
        .collect()
}

impl Report {
    /// Counts a case.
    pub fn check(&mut self, case: &Case, variant: &str, backend: &str, found: Result<(), Failure>) {
        self.record(case.subject, variant, backend, &case.name, found);
    }

    fn fail(&mut self, case: &Case, variant: &str, backend: &str, message: String) {
        self.check(case, variant, backend, Err(Failure::message(message)));
    }
}
