//! All checks, as `cargo xtask golden` runs them.

use crate::candidate::Candidate;
use crate::checks::encoded;
use crate::checks::fixtures::{Scope, check};
use crate::checks::model::{self, Long};
use crate::checks::routes::{self, Kind, RouteError};
use crate::fixture::{Fixture, FixtureError};
use crate::parallel::{self, Progress};
use crate::report::Report;
use crate::snapshot;
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
    /// Seeds of each fixture; random checks scale with it.
    pub cases: u64,
    /// Moves every seed but those that are pinned.
    pub seed: u64,
    /// The long forms of the checks that have one.
    pub slow: bool,
    /// One file instead of all fixtures, and no other checks.
    pub fixture: Option<PathBuf>,
}

/// Ways of each family for one `--cases`.
const WAYS: u64 = 3;
/// Random routes of each kind for one `--cases`.
const ROUTES: u64 = 8;

/// Why nothing could be proved.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ProveError {
    #[error(transparent)]
    Fixture(#[from] FixtureError),
    #[error(transparent)]
    Route(#[from] RouteError),
    #[error("golden/snapshots: {0}")]
    Pins(std::io::Error),
}

impl Options {
    fn wants(&self, name: &str) -> bool {
        self.filter.as_ref().is_none_or(|f| name.contains(f))
    }

    /// Whether nothing is left out.
    fn complete(&self) -> bool {
        self.filter.is_none() && self.fixture.is_none()
    }

    fn candidates(&self) -> Vec<Candidate> {
        match self.cpu {
            true => Candidate::cpu(),
            false => Vec::new(),
        }
    }

    /// A file from elsewhere has no pin among the project's.
    fn fixtures_are_ours(&self) -> bool {
        let ours = crate::folder().join("fixtures").canonicalize();
        self.fixture.as_ref().is_none_or(|path| {
            let path = path.canonicalize();
            ours.is_ok_and(|ours| path.is_ok_and(|path| path.starts_with(ours)))
        })
    }

    fn fixtures(&self) -> Result<Vec<Fixture>, FixtureError> {
        let all = match &self.fixture {
            Some(path) if encoded::is_encoded(path) => Vec::new(),
            Some(path) => vec![Fixture::load(path)?],
            None => Fixture::load_all(&crate::folder().join("fixtures"))?,
        };
        Ok(all.into_iter().filter(|f| self.wants(&f.name)).collect())
    }
}

/// A check with its name.
type Job<'a> = (
    String,
    Box<dyn Fn() -> Result<Report, ProveError> + Send + Sync + 'a>,
);

/// Runs every check.
pub fn prove(options: &Options, progress: &dyn Progress) -> Result<Report, ProveError> {
    let started = Instant::now();
    let candidates = options.candidates();
    let backends: Vec<&dyn Backend> = candidates.iter().map(|c| c as &dyn Backend).collect();
    let pins = crate::folder().join("snapshots");
    let fixtures = options.fixtures()?;
    let mut report = Report::default();
    if options.cpu {
        report.unproved = Candidate::cpu_out_of_reach();
    }
    if options.complete() {
        let names: Vec<&str> = fixtures.iter().map(|f| f.name.as_str()).collect();
        report.stale_pins = snapshot::stale(&pins, &names).map_err(ProveError::Pins)?;
    }
    let mut jobs = fixture_jobs(options, fixtures, &backends, &pins);
    if let Some(path) = options.fixture.as_ref().filter(|p| encoded::is_encoded(p)) {
        let run = || Ok(encoded::check(path, &backends)?);
        jobs.push((path.display().to_string(), Box::new(run)));
    }
    if options.fixture.is_none() {
        let others = route_jobs(options, &backends).into_iter();
        let others = others.chain(model_jobs(options, &backends));
        jobs.extend(others.filter(|(name, _)| options.wants(name)));
    }
    progress.total(jobs.len());
    let reports = parallel::map(&jobs, |(name, job)| {
        progress.started(name);
        let report = job();
        progress.finished();
        report
    });
    for found in reports {
        report.merge(found?);
    }
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

fn fixture_jobs<'a>(
    options: &'a Options,
    fixtures: Vec<Fixture>,
    backends: &'a [&'a dyn Backend],
    pins: &'a Path,
) -> Vec<Job<'a>> {
    let job = |fixture: Fixture| -> Job<'a> {
        let name = fixture.name.clone();
        let run = move || {
            let scope = Scope {
                backends,
                seeds: options.cases,
                shift: options.seed,
                pins: options.fixtures_are_ours().then_some(pins),
                sweep: true,
                wording: true,
            };
            Ok(check(&fixture, &scope)?)
        };
        (name, Box::new(run))
    };
    fixtures.into_iter().map(job).collect()
}

fn model_jobs<'a>(options: &'a Options, backends: &'a [&'a dyn Backend]) -> Vec<Job<'a>> {
    let scope = move || model::Scope {
        backends,
        cases: WAYS * options.cases,
        seed: options.seed,
        long: if options.slow {
            Long::SLOW
        } else {
            Long::QUICK
        },
    };
    let mut jobs: Vec<Job<'a>> = Vec::new();
    for vary in model::FAMILIES {
        let run = move || Ok(model::check_ways(vary, &scope()));
        jobs.push((format!("{}: {}", model::OP, vary.variant()), Box::new(run)));
    }
    for trained in model::TRAINED {
        let run = move || Ok(model::check_trained(trained, &scope()));
        let name = format!("{}: {}", model::OP, trained.variant());
        jobs.push((name, Box::new(run)));
    }
    let run = move || Ok(model::check_ranks(&scope()));
    jobs.push((format!("{}: ranks", model::OP), Box::new(run)));
    let run = move || Ok(model::check_long(&scope()));
    jobs.push((format!("{}: long text", model::OP), Box::new(run)));
    jobs
}

/// What routes run through: a filter for one of them takes its routes along.
const SUBJECTS: &str = "routed_moe, moe_layer";

/// What failed once comes first, then what was captured, then what is random.
fn route_jobs<'a>(options: &'a Options, backends: &'a [&'a dyn Backend]) -> Vec<Job<'a>> {
    let mut jobs: Vec<Job<'a>> = Vec::new();
    let kept = [
        (routes::regressions_folder(), "routes, regressions"),
        (routes::captured_folder(), "routes, captured"),
    ];
    for (folder, variant) in kept {
        let run = move || Ok(routes::check_folder(&folder, variant, backends)?);
        jobs.push((format!("{SUBJECTS}: {variant}"), Box::new(run)));
    }
    for kind in Kind::ALL {
        let run = move || {
            let regressions = routes::regressions_folder().join("routes.jsonl");
            let scope = routes::Scope {
                backends,
                cases: u32::try_from(ROUTES * options.cases).unwrap_or(u32::MAX),
                seed: options.seed,
                regressions: Some(&regressions),
            };
            Ok(routes::check_kind(kind, &scope)?)
        };
        jobs.push((
            format!("{SUBJECTS}: routes, {}", kind.name()),
            Box::new(run),
        ));
    }
    jobs
}

/// Plants every mutant.
pub fn bite(options: &Options, progress: &dyn Progress) -> Result<Teeth, ProveError> {
    let wanted = |op: &str| options.wants(op);
    Ok(teeth::bite(&options.fixtures()?, wanted, progress)?)
}
