//! A whole model: nothing but its own tokens changes the bytes of a sequence, on any backend.

mod ranks;
mod trained;
mod walk;
mod ways;

use crate::checks::{Failure, agree, verdict};
use crate::report::Report;
use crate::small_model::{Formats, ModelError};
use layerlet_core::backend::Backend;
use layerlet_core::plan::{Parallelism, Split};
use layerlet_core::reference::Reference;
use walk::{Scene, walk};
use ways::{Way, plain, way};

pub use trained::{TRAINED, check_trained};
pub use ways::{Draw, Vary};

/// Name in the table.
pub const OP: &str = "model";

/// Lengths of the texts: over a block of 64 keys, under it, and one token.
const LENGTHS: [usize; 4] = [80, 33, 9, 1];

/// Many tokens, many times.
#[derive(Clone, Copy, Debug)]
pub struct Long {
    /// Length of the text.
    pub tokens: usize,
    /// How often it is read.
    pub runs: usize,
}

impl Long {
    /// Part of every run.
    pub const QUICK: Long = Long {
        tokens: 512,
        runs: 5,
    };
    /// Elsewhere a race at this length was skipped as "random numeric error".
    pub const SLOW: Long = Long {
        tokens: 8192,
        runs: 20,
    };

    fn variant(self) -> String {
        format!("{} tokens, {} runs", self.tokens, self.runs)
    }
}

/// What a whole model is checked with.
pub struct Scope<'a> {
    /// Everything but the reference.
    pub backends: &'a [&'a dyn Backend],
    /// Random ways of each family.
    pub cases: u64,
    /// Where their randomness starts.
    pub seed: u64,
    /// The long text.
    pub long: Long,
}

const FORMATS: [Formats; 2] = [Formats::W8A8, Formats::Bf16];

/// One family of ways on every backend, op by op and fused.
pub fn check_ways(vary: Vary, scope: &Scope<'_>) -> Report {
    let mut report = Report::default();
    for formats in FORMATS {
        let family = Family {
            name: format!("{formats:?}"),
            variant: vary.variant().into(),
            vary,
            cases: scope.cases,
        };
        let scene = Scene::random(formats, &LENGTHS);
        check_family(&family, scene, scope, &mut report);
    }
    report
}

/// What [`check_ways`] varies.
pub const FAMILIES: [Vary; 5] = [
    Vary::Split,
    Vary::Company,
    Vary::Layout,
    Vary::Drafts,
    Vary::Repeated,
];

/// Ways of one family through one scene.
struct Family {
    /// Which scene.
    name: String,
    /// Name in the table.
    variant: String,
    vary: Vary,
    cases: u64,
}

/// A scene or a baseline that cannot be had is a failure of the family.
fn check_family(
    family: &Family,
    scene: Result<Scene, ModelError>,
    scope: &Scope<'_>,
    report: &mut Report,
) {
    let outcome = scene.and_then(|scene| check_scene(family, &scene, scope, report));
    if let Err(e) = outcome {
        let found = Err(e.into());
        report.record(OP, &family.variant, "reference", &family.name, found);
    }
}

fn check_scene(
    family: &Family,
    scene: &Scene,
    scope: &Scope<'_>,
    report: &mut Report,
) -> Result<(), ModelError> {
    let lengths = scene.lengths();
    let baseline = |sampled| walk(&Reference, scene, &plain(&lengths, sampled), false);
    let (greedy, sampled) = (baseline(false)?, baseline(true)?);
    let reference: &dyn Backend = &Reference;
    for n in 0..family.cases {
        let way = way(family.vary, &lengths, scope.seed, n);
        let expected = if way.sampled { &sampled } else { &greedy };
        for backend in std::iter::once(&reference).chain(scope.backends) {
            let name = backend.identity().backend;
            // By its definition a fused launch is its stages: on the reference one form is enough.
            let forms = if name == "reference" {
                &[false][..]
            } else {
                &[false, true]
            };
            for &fused in forms {
                let found = verdict(expected, walk(*backend, scene, &way, fused));
                let case = describe(&family.name, n, fused, &way);
                report.record(OP, &family.variant, &name, &case, found);
            }
        }
    }
    Ok(())
}

fn describe(scene: &str, n: u64, fused: bool, way: &Way) -> String {
    let form = if fused { "fused" } else { "op by op" };
    format!("{scene}, way {n}, {form}: {way:?}")
}

/// Ranks against one device.
pub fn check_ranks(scope: &Scope<'_>) -> Report {
    let mut report = Report::default();
    for formats in FORMATS {
        for shared in ranks::SHARED {
            if let Err(e) = check_shared(formats, shared, scope, &mut report) {
                report.record(
                    OP,
                    shared.2,
                    "reference",
                    &format!("{formats:?}"),
                    Err(e.into()),
                );
            }
        }
    }
    report
}

fn check_shared(
    formats: Formats,
    (parallelism, ranks, variant): (Parallelism, usize, &str),
    scope: &Scope<'_>,
    report: &mut Report,
) -> Result<(), ModelError> {
    let scene = Scene::random(formats, &[41])?;
    let expected = ranks::walk(&Reference, &scene, Split::WHOLE, false)?;
    let split = Split {
        rank: 0,
        ranks,
        parallelism,
    };
    let reference: &dyn Backend = &Reference;
    for backend in std::iter::once(&reference).chain(scope.backends) {
        let name = backend.identity().backend;
        for fused in [false, true] {
            for (rank, found) in ranks::walk(*backend, &scene, split, fused)?
                .iter()
                .enumerate()
            {
                let case = format!("{formats:?}, fused {fused}, rank {rank}");
                report.record(OP, variant, &name, &case, agree(&expected[0], found));
            }
        }
    }
    Ok(())
}

/// One long text, again and again, fused: every run gives the bytes of the first, and the first those of
/// the reference where that can be waited for.
pub fn check_long(scope: &Scope<'_>) -> Report {
    let mut report = Report::default();
    let variant = scope.long.variant();
    for backend in scope.backends {
        let name = backend.identity().backend;
        if let Err(e) = repeat(*backend, scope.long, &variant, &name, &mut report) {
            report.record(OP, &variant, &name, "set-up", Err(e.into()));
        }
    }
    report
}

fn repeat(
    backend: &dyn Backend,
    long: Long,
    variant: &str,
    name: &str,
    report: &mut Report,
) -> Result<(), ModelError> {
    let scene = Scene::random(Formats::W8A8, &[long.tokens])?;
    let whole = plain(&scene.lengths(), false);
    let (first, of) = match long.tokens <= Long::QUICK.tokens {
        true => (walk(&Reference, &scene, &whole, false)?, "the reference"),
        false => (walk(backend, &scene, &whole, true)?, "the first run"),
    };
    for run in 0..long.runs {
        let found = verdict(&first, walk(backend, &scene, &whole, true));
        report.record(OP, variant, name, &format!("run {run} against {of}"), found);
    }
    Ok(())
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Failure {
        Failure::message(error.to_string())
    }
}
