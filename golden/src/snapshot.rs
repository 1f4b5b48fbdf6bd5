//! Pins: what the reference gives for a fixture, in a file of insta's form, so that a change of
//! semantics is a diff to review (`cargo insta review`).

use crate::compare::Value;
use crate::run::Written;
use layerlet_core::fixture::hex;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// How many leading values a pin shows.
const SHOWN: usize = 6;

/// What a pin says of a run: each written buffer with its digest and first values.
pub fn render(written: &[Written]) -> String {
    let mut text = String::new();
    for w in written {
        let (dtype, shape) = (w.decl.dtype, &w.decl.shape);
        let digest = hex(&Sha256::digest(&w.bytes));
        let _ = writeln!(text, "{} {dtype} {shape:?} sha256:{digest}", w.decl.name);
        for i in 0..w.decl.elements().min(SHOWN) {
            let _ = writeln!(text, "    {}", Value::read(dtype, &w.bytes, i));
        }
    }
    text
}

/// Digest of all written buffers: what an attestation calls the reference of a fixture.
pub fn digest(written: &[Written]) -> String {
    hex(&Sha256::digest(render(written)))
}

/// How a run stands to its pin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pin {
    /// As pinned.
    Same,
    /// There was none; it is written now, for review.
    New,
    /// Otherwise; what was found lies beside the pin as `.snap.new`.
    Changed {
        /// First line that differs, as pinned.
        expected: String,
        /// The same line now.
        found: String,
    },
}

/// Compares a run with the pin of its fixture.
pub fn check(folder: &Path, fixture: &str, written: &[Written]) -> io::Result<Pin> {
    let path = path(folder, fixture);
    let found = render(written);
    if !path.exists() {
        fs::create_dir_all(folder)?;
        fs::write(&path, file(&found))?;
        return Ok(Pin::New);
    }
    let text = fs::read_to_string(&path)?;
    let pinned = text
        .splitn(3, "---\n")
        .nth(2)
        .unwrap_or_default()
        .trim_end();
    let found_body = found.trim_end();
    let unreviewed = path.with_extension("snap.new");
    if pinned == found_body {
        // What an earlier run found is no question any more.
        if unreviewed.exists() {
            fs::remove_file(unreviewed)?;
        }
        return Ok(Pin::Same);
    }
    fs::write(unreviewed, file(&found))?;
    let differing = pinned
        .lines()
        .map(Some)
        .chain(std::iter::repeat(None))
        .zip(found_body.lines().map(Some).chain([None]))
        .find(|(a, b)| a != b)
        .unwrap_or_default();
    Ok(Pin::Changed {
        expected: differing.0.unwrap_or("(end)").to_string(),
        found: differing.1.unwrap_or("(end)").to_string(),
    })
}

/// SHA-256 over all pins, by name: the semantics that an attestation speaks of. The header of a file says
/// nothing of it.
pub fn reference_digest(folder: &Path) -> io::Result<String> {
    let mut digest = Sha256::new();
    for path in pins(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let text = fs::read_to_string(&path)?;
        digest.update(format!("{name}\n{}\n", body(&text)));
    }
    Ok(hex(&digest.finalize()))
}

/// Pins of fixtures that are gone.
pub fn stale(folder: &Path, fixtures: &[&str]) -> io::Result<Vec<String>> {
    let known: Vec<PathBuf> = fixtures.iter().map(|name| path(folder, name)).collect();
    let stale = pins(folder)?.into_iter().filter(|p| !known.contains(p));
    Ok(stale.map(|p| p.display().to_string()).collect())
}

fn pins(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.map(|entry| entry.map(|e| e.path()));
    let mut paths: Vec<PathBuf> = entries.collect::<io::Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|e| e == "snap"));
    paths.sort();
    Ok(paths)
}

/// What follows the header.
fn body(text: &str) -> &str {
    text.splitn(3, "---\n")
        .nth(2)
        .unwrap_or_default()
        .trim_end()
}

/// Where the pin of a fixture lies.
pub fn path(folder: &Path, fixture: &str) -> PathBuf {
    folder.join(format!("{}.snap", fixture.replace('/', "__")))
}

fn file(body: &str) -> String {
    format!("---\nsource: golden/tests/snapshots.rs\nexpression: pin\n---\n{body}")
}
