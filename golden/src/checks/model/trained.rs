//! The invariances again, on trained weights and text that they were not trained on.

use super::walk::Scene;
use super::{Family, Scope, Vary, check_family};
use crate::report::Report;
use crate::small_model::Formats;

/// Lengths of the texts: over a block of 64 keys, under it, and one token.
const LENGTHS: [usize; 3] = [72, 21, 1];

/// One family of ways through the demo model in one format.
#[derive(Clone, Copy, Debug)]
pub struct Trained {
    formats: Formats,
    vary: Vary,
}

const fn int8(vary: Vary) -> Trained {
    let formats = Formats::W8A8;
    Trained { formats, vary }
}

const fn bf16(vary: Vary) -> Trained {
    let formats = Formats::Bf16;
    Trained { formats, vary }
}

/// What [`check_trained`] varies: everything in int8; in bf16, which takes longer, cuts, company
/// and memory.
pub const TRAINED: [Trained; 8] = [
    int8(Vary::Split),
    int8(Vary::Company),
    int8(Vary::Layout),
    int8(Vary::Drafts),
    int8(Vary::Repeated),
    bf16(Vary::Split),
    bf16(Vary::Company),
    bf16(Vary::Layout),
];

impl Trained {
    /// Name in the table.
    pub fn variant(self) -> String {
        let format = match self.formats {
            Formats::Bf16 => "bf16",
            Formats::W8A8 => "int8",
        };
        format!("demo {format}, {}", self.vary.variant())
    }
}

/// One of them on every backend, op by op and fused.
pub fn check_trained(trained: Trained, scope: &Scope<'_>) -> Report {
    let mut report = Report::default();
    let family = Family {
        name: "demo".into(),
        variant: trained.variant(),
        vary: trained.vary,
        // The model is far larger than the random one.
        cases: scope.cases.div_ceil(2),
    };
    let scene = Scene::trained(trained.formats, &LENGTHS);
    check_family(&family, scene, scope, &mut report);
    report
}
