//! One encoded fixture (`.llfx`): a launch of live traffic that shadow verification kept, or one that a
//! plugin carries. It holds its own plan, inputs and digests, so it has neither seed nor pin.

use super::fixtures::{check_backend, reference};
use super::{Failure, verdict};
use crate::case::Case;
use crate::fixture::FixtureError;
use crate::report::Report;
use crate::run::{POISONS, run};
use layerlet_core::backend::Backend;
use layerlet_core::fixture::Fixture;
use layerlet_core::launch::{Layerlet, OPERATIONS};
use layerlet_core::reference::Reference;
use std::fs;
use std::io::Read;
use std::path::Path;

/// The first bytes of every encoded fixture.
const MAGIC: &[u8; 4] = b"LLFX";

/// Whether a file is one, by its first bytes.
pub fn is_encoded(path: &Path) -> bool {
    let mut start = [0; MAGIC.len()];
    let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == *MAGIC
}

/// The reference must give the digests of the file, the backends the bytes of the reference.
pub fn check(path: &Path, backends: &[&dyn Backend]) -> Result<Report, FixtureError> {
    let failed = |message: String| FixtureError::new(path, message);
    let bytes = fs::read(path).map_err(|e| failed(e.to_string()))?;
    let fixture = Fixture::decode(&bytes).map_err(|e| failed(e.to_string()))?;
    let case = Case {
        name: path.display().to_string(),
        subject: subject(&fixture.subject).map_err(failed)?,
        plan: fixture.plan.clone(),
        inputs: fixture.inputs.clone(),
    };
    let mut report = Report::default();
    let same = fixture.test(&Reference);
    let same = same.map_err(|e| Failure::message(format!("the file was made elsewhere: {e}")));
    report.check(&case, "kept", "reference", same);
    match reference(&case, &case) {
        Err(e) => report.check(
            &case,
            "poison",
            "reference",
            Err(Failure::message(e.to_string())),
        ),
        Ok(expected) => {
            let poisoned = run(&Reference, &case.staged(), &case.staged(), POISONS[1]);
            report.check(&case, "poison", "reference", verdict(&expected, poisoned));
            for backend in backends {
                check_backend(&case, &case, &expected, *backend, &POISONS, &mut report);
            }
        }
    }
    Ok(report)
}

fn subject(name: &str) -> Result<&'static str, String> {
    let layerlets = Layerlet::ALL.map(Layerlet::name);
    let known = OPERATIONS.iter().copied().chain(layerlets);
    let mut known = known.filter(|known| *known == name);
    known
        .next()
        .ok_or_else(|| format!("there is no operation or layerlet {name:?}"))
}
