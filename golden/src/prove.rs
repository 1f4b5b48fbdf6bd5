//! All checks, as `cargo xtask golden` runs them.

use crate::candidate::Candidate;
use crate::checks::fixtures::{Scope, check};
use crate::fixture::{Fixture, FixtureError};
use crate::report::Report;
use crate::teeth::{self, Teeth};
use layerlet_core::backend::Backend;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What to prove.
#[derive(Clone, Debug)]
pub struct Options {
    /// Only operations, layerlets and checks whose name contains this.
    pub filter: Option<String>,
    /// Check the CPU backend; the reference is always checked.
    pub cpu: bool,
    /// Seeds of each fixture, and runs of each random check.
    pub cases: u64,
    /// One file instead of all fixtures.
    pub fixture: Option<PathBuf>,
}

impl Options {
    fn wants(&self, name: &str) -> bool {
        self.filter.as_ref().is_none_or(|f| name.contains(f))
    }

    fn candidates(&self) -> Vec<Candidate> {
        match self.cpu {
            true => Candidate::cpu(),
            false => Vec::new(),
        }
    }

    fn fixtures(&self) -> Result<Vec<Fixture>, FixtureError> {
        let all = match &self.fixture {
            Some(path) => vec![Fixture::load(path)?],
            None => Fixture::load_all(&crate::folder().join("fixtures"))?,
        };
        Ok(all.into_iter().filter(|f| self.wants(&f.name)).collect())
    }
}

/// Called before each check with its name.
pub type Progress<'a> = &'a dyn Fn(&str);

/// Runs every check.
pub fn prove(options: &Options, progress: Progress<'_>) -> Result<Report, FixtureError> {
    let started = Instant::now();
    let candidates = options.candidates();
    let backends: Vec<&dyn Backend> = candidates.iter().map(|c| c as &dyn Backend).collect();
    let pins = crate::folder().join("snapshots");
    let scope = Scope {
        backends: &backends,
        seeds: options.cases,
        pins: Some(Path::new(&pins)),
        sweep: true,
    };
    let mut report = Report::default();
    for fixture in options.fixtures()? {
        progress(&fixture.name);
        report.merge(check(&fixture, &scope)?);
    }
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

/// Plants every mutant.
pub fn bite(options: &Options, progress: Progress<'_>) -> Result<Teeth, FixtureError> {
    teeth::bite(&options.fixtures()?, |op| options.wants(op), progress)
}
