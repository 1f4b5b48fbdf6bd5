//! Route fuzzing: whatever the router says, the routed experts give the bytes of the definition and of a
//! loop over tokens. A failure shrinks to the smallest route and stays in the repository.

mod naive;
mod plan;
mod route;
mod strategy;

use crate::checks::fixtures::{check_backend, reference};
use crate::checks::{Failure, agree};
use crate::report::{Report, Row};
use crate::run::{POISONS, run};
use layerlet_core::backend::Backend;
use layerlet_core::launch::Layerlet;
use layerlet_core::plan::LinearFormat;
use layerlet_core::reference::Reference;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use sha2::{Digest, Sha256};
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};

pub use route::{Route, RouteError};
pub use strategy::Kind;

/// What a route runs through.
type Form = (Layerlet, LinearFormat);

const FORMS: [Form; 4] = [
    (Layerlet::RoutedMoe, LinearFormat::W8A8),
    (Layerlet::RoutedMoe, LinearFormat::Bf16),
    (Layerlet::MoeLayer, LinearFormat::W8A8),
    (Layerlet::MoeLayer, LinearFormat::Bf16),
];
/// Tries to make a failing route smaller.
const SHRINKS: u32 = 2000;

/// What routes are checked with.
pub struct Scope<'a> {
    /// Everything but the reference.
    pub backends: &'a [&'a dyn Backend],
    /// Random routes of each kind.
    pub cases: u32,
    /// Where their randomness starts.
    pub seed: u64,
    /// Failures are kept here; none keeps them nowhere.
    pub regressions: Option<&'a Path>,
}

/// Captured routes.
pub fn captured_folder() -> PathBuf {
    crate::folder().join("routes")
}

/// Routes that failed once.
pub fn regressions_folder() -> PathBuf {
    crate::folder().join("regressions")
}

/// Every route of a folder's `.jsonl` files.
pub fn check_folder(
    folder: &Path,
    variant: &str,
    backends: &[&dyn Backend],
) -> Result<Report, RouteError> {
    let mut report = Report::default();
    for (name, route) in Route::read_folder(folder)? {
        check_route(&route, &name, variant, backends, &mut report);
    }
    Ok(report)
}

/// Random routes of a kind.
pub fn check_kind(kind: Kind, scope: &Scope<'_>) -> Result<Report, RouteError> {
    let variant = format!("routes, {}", kind.name());
    let passed = RefCell::new(Report::default());
    // What failed first; smaller routes need to fail there and nowhere else.
    let failed: Cell<Option<Form>> = Cell::new(None);
    let mut runner = runner(kind, scope);
    let outcome = runner.run(&strategy::routes(kind), |route| {
        let mut report = Report::default();
        let forms = failed.get().map_or(FORMS.to_vec(), |form| vec![form]);
        for form in forms {
            check_form(
                form,
                &route,
                "random",
                &variant,
                scope.backends,
                &mut report,
            );
            if !report.mismatches.is_empty() {
                failed.set(Some(form));
                return Err(TestCaseError::fail("other bytes"));
            }
        }
        // What passes while a failing route shrinks is no case of its own.
        if failed.get().is_none() {
            passed.borrow_mut().merge(report);
        }
        Ok(())
    });
    let mut report = passed.into_inner();
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(_, route)) => {
            if let Some(file) = scope.regressions {
                route.append(file)?;
            }
            check_route(&route, "smallest", &variant, scope.backends, &mut report);
        }
        Err(TestError::Abort(reason)) => {
            let message = Failure::message(format!("no route was made: {reason}"));
            report.record("routed_moe", &variant, "reference", "random", Err(message));
        }
    }
    Ok(report)
}

/// The same routes for the same seed.
fn runner(kind: Kind, scope: &Scope<'_>) -> TestRunner {
    let config = Config {
        cases: scope.cases,
        max_shrink_iters: SHRINKS,
        failure_persistence: None,
        ..Config::default()
    };
    let seed = Sha256::digest(format!("{} {}", kind.name(), scope.seed));
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed))
}

/// One route through every layerlet and format, on every backend.
fn check_route(
    route: &Route,
    name: &str,
    variant: &str,
    backends: &[&dyn Backend],
    report: &mut Report,
) {
    for form in FORMS {
        check_form(form, route, name, variant, backends, report);
    }
}

/// One of them, if it can take the route.
fn check_form(
    (layerlet, format): Form,
    route: &Route,
    name: &str,
    variant: &str,
    backends: &[&dyn Backend],
    report: &mut Report,
) {
    if !plan::fits(layerlet, route) {
        return;
    }
    let mut found = Report::default();
    if let Err(failure) = check_case(layerlet, format, route, backends, &mut found) {
        let op = layerlet.name();
        found.record(op, "set-up", "reference", &route.to_string(), Err(failure));
    }
    for row in found.rows {
        report.add(Row {
            variant: variant.into(),
            ..row
        });
    }
    for mut mismatch in found.mismatches {
        mismatch.variant = format!("{variant}, {}", mismatch.variant);
        mismatch.case = format!("{name}: {}", mismatch.case);
        report.mismatches.push(mismatch);
    }
}

fn check_case(
    layerlet: Layerlet,
    format: LinearFormat,
    route: &Route,
    backends: &[&dyn Backend],
    report: &mut Report,
) -> Result<(), Failure> {
    let case = plan::case(layerlet, format, route)?;
    let later = plan::case(layerlet, format, &turned(route))?;
    let device = |e: layerlet_core::backend::BackendError| Failure::message(e.to_string());
    let expected = reference(&case, &later).map_err(device)?;
    let (op, name) = (case.subject, case.name.as_str());
    let again = run(&Reference, &case.staged(), &later.staged(), POISONS[1]).map_err(device)?;
    report.record(op, "poison", "reference", name, agree(&expected, &again));
    if layerlet == Layerlet::RoutedMoe {
        let missing = || Failure::message("the case lacks an input of the loop over tokens");
        let naive = naive::routed_moe(&case, route).ok_or_else(missing)?;
        let found = agree(&[naive], &expected);
        report.record(op, "token by token", "reference", name, found);
    }
    for backend in backends {
        check_backend(&case, &later, &expected, *backend, &POISONS[..1], report);
    }
    Ok(())
}

/// Another route of the same sizes: tokens in reverse, experts moved on by one.
fn turned(route: &Route) -> Route {
    let experts = route.experts() as i64;
    let mut turned = route.clone();
    turned.experts = Some(route.experts());
    turned.topk_ids.reverse();
    turned.topk_weights.reverse();
    turned.row_scale.reverse();
    for id in turned.topk_ids.iter_mut().flatten().filter(|id| **id >= 0) {
        *id = (*id + 1) % experts;
    }
    turned
}
