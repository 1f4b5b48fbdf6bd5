//! What went wrong with a case, and how a report counts it.

use crate::compare::{Difference, compare};
use crate::report::{Mismatch, Report};
use crate::run::Written;
use std::fmt::Display;

/// What went wrong with a case.
#[derive(Debug, Default)]
pub struct Failure {
    /// First stage that differs.
    pub stage: Option<String>,
    /// Differing bytes.
    pub difference: Option<Box<Difference>>,
    /// Anything else.
    pub message: Option<String>,
}

impl Failure {
    /// A failure that is no difference of bytes.
    pub fn message(message: impl Into<String>) -> Failure {
        Failure {
            message: Some(message.into()),
            ..Failure::default()
        }
    }
}

/// Compares a run with what is expected. A run that shows none of the expected buffers fails: nothing
/// was compared.
pub fn verdict(
    expected: &[Written],
    found: Result<Vec<Written>, impl Display>,
) -> Result<(), Failure> {
    let found = found.map_err(|e| Failure::message(e.to_string()))?;
    let shown = |e: &Written| found.iter().any(|f| f.decl.name == e.decl.name);
    if !expected.iter().any(shown) {
        return Err(Failure::message(
            "the run shows none of the expected buffers",
        ));
    }
    agree(expected, &found)
}

/// Compares what two runs both show.
pub fn agree(expected: &[Written], found: &[Written]) -> Result<(), Failure> {
    match compare(expected, found) {
        None => Ok(()),
        Some(difference) => Err(Failure {
            difference: Some(Box::new(difference)),
            ..Failure::default()
        }),
    }
}

impl Report {
    /// Counts a case by what came of it.
    pub fn record(
        &mut self,
        op: &str,
        variant: &str,
        backend: &str,
        case: &str,
        found: Result<(), Failure>,
    ) {
        let mismatch = found.err().map(|failure| Mismatch {
            op: op.into(),
            variant: variant.into(),
            backend: backend.into(),
            case: case.into(),
            stage: failure.stage,
            difference: failure.difference.map(|d| *d),
            message: failure.message,
        });
        self.count(op, variant, backend, mismatch);
    }
}
