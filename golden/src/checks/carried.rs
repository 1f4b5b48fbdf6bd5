//! Fixtures as bytes, as whoever carries kernels carries them: encoded, read again, and run as a device's
//! test of itself.

use super::Failure;
use crate::case::Case;
use crate::report::Report;
use crate::run::Written;
use layerlet_core::backend::Backend;
use layerlet_core::fixture::{Fixture, digest};
use layerlet_core::reference::Reference;

/// The case with the digests of what it must leave.
pub fn carry(case: &Case, expected: &[Written]) -> Result<Fixture, Failure> {
    let mut outputs = Vec::new();
    for id in Fixture::results(&case.plan) {
        let decl = case.decl(id);
        let written = expected.iter().find(|w| w.decl.name == decl.name);
        let kept = case.inputs.iter().find(|(input, _)| *input == id);
        // State that nothing writes stays as it was given.
        let bytes = written.map(|w| &w.bytes).or(kept.map(|(_, bytes)| bytes));
        let missing = || Failure::message(format!("{} is neither given nor written", decl.name));
        outputs.push((id, digest(decl.dtype, bytes.ok_or_else(missing)?)));
    }
    Ok(Fixture {
        name: case.name.clone(),
        subject: case.subject.into(),
        plan: case.plan.clone(),
        inputs: case.inputs.clone(),
        outputs,
    })
}

/// Through bytes and back, then on the reference and every backend.
pub fn check(case: &Case, expected: &[Written], backends: &[&dyn Backend], report: &mut Report) {
    let read = carry(case, expected).and_then(|fixture| {
        Fixture::decode(&fixture.encode()).map_err(|e| Failure::message(e.to_string()))
    });
    let fixture = match read {
        Ok(fixture) => fixture,
        Err(failure) => return report.check(case, "carried", "reference", Err(failure)),
    };
    let reference: &dyn Backend = &Reference;
    for backend in std::iter::once(&reference).chain(backends) {
        let found = fixture.test(*backend);
        let found = found.map_err(|e| Failure::message(e.to_string()));
        report.check(case, "carried", &backend.identity().backend, found);
    }
}
