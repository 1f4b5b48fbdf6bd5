//! From a report to an attestation: only a complete run without a fault proves anything.

use crate::candidate::Candidate;
use crate::prove::Options;
use crate::report::Report;
use crate::snapshot;
use crate::teeth::Teeth;
use layerlet_core::attestation::{self, Attestation, Proof};
use serde_json::json;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Why there is no attestation.
#[derive(Debug, thiserror::Error)]
pub enum NoAttestation {
    /// Something was left out.
    #[error("only a complete run is attested: without {0}")]
    Incomplete(&'static str),
    /// Something is wrong.
    #[error("{0}")]
    Faulty(String),
    /// The pins cannot be read.
    #[error("{path}: {source}")]
    Io {
        /// Which file or folder.
        path: String,
        /// Why.
        source: io::Error,
    },
}

/// What a run proved.
pub fn attest(
    options: &Options,
    report: &Report,
    teeth: Option<&Teeth>,
) -> Result<Attestation, NoAttestation> {
    let left_out = [
        (options.filter.is_some(), "--filter"),
        (options.fixture.is_some(), "--fixture"),
        (!options.cpu, "--backend reference"),
    ];
    if let Some((_, flag)) = left_out.into_iter().find(|(given, _)| *given) {
        return Err(NoAttestation::Incomplete(flag));
    }
    let faults = [
        (report.mismatches.len(), "mismatches"),
        (report.new_pins.len(), "pins that nobody has reviewed"),
        (report.stale_pins.len(), "pins without a fixture"),
        (
            usize::from(!teeth.is_none_or(Teeth::hold)),
            "surviving mutants",
        ),
    ];
    if let Some((n, what)) = faults.into_iter().find(|(n, _)| *n > 0) {
        return Err(NoAttestation::Faulty(format!("{n} {what}")));
    }
    let pins = crate::folder().join("snapshots");
    let reference = snapshot::reference_digest(&pins).map_err(|source| NoAttestation::Io {
        path: pins.display().to_string(),
        source,
    })?;
    Ok(Attestation {
        reference,
        seed: options.seed,
        teeth: teeth.map(|t| attestation::Teeth {
            caught: t.bites.iter().filter(|b| b.caught && b.control).count() as u32,
            planted: t.bites.len() as u32,
        }),
        proofs: proofs(report, &Candidate::cpu()),
    })
}

/// Settings of one build on one device are one kernel: their cases are added up.
fn proofs(report: &Report, candidates: &[Candidate]) -> Vec<Proof> {
    let mut proofs: Vec<Proof> = Vec::new();
    for row in &report.rows {
        let Some(candidate) = candidates.iter().find(|c| c.name == row.backend) else {
            continue;
        };
        let proof = Proof {
            op: row.op.clone(),
            variant: row.variant.clone(),
            kernel: candidate.kernel.clone(),
            device: candidate.device(),
            cases: row.cases as u64,
        };
        let same = |p: &&mut Proof| {
            (&p.op, &p.variant, &p.kernel, &p.device)
                == (&proof.op, &proof.variant, &proof.kernel, &proof.device)
        };
        match proofs.iter_mut().find(same) {
            Some(known) => known.cases += proof.cases,
            None => proofs.push(proof),
        }
    }
    proofs
}

/// Writes it as JSON for people, and beside it as the versioned bytes that hosts read.
pub fn write(attestation: &Attestation, path: &Path) -> Result<[PathBuf; 2], NoAttestation> {
    let text = json!({
        "format": "layerlet attestation",
        "version": attestation::VERSION,
        "attestation": attestation,
    });
    let bytes = path.with_extension("llat");
    let files = [
        (path.to_path_buf(), format!("{text:#}\n").into_bytes()),
        (bytes, attestation.encode()),
    ];
    for (path, content) in &files {
        let write = || -> io::Result<()> {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::write(path, content)
        };
        write().map_err(|source| NoAttestation::Io {
            path: path.display().to_string(),
            source,
        })?;
    }
    Ok(files.map(|(path, _)| path))
}
