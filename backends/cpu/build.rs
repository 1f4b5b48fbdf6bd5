//! Digest of what decides the bytes of this backend: its sources, core's, the compiler and the
//! profile. Attestations carry it.

use sha2::{Digest, Sha256};
use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() -> io::Result<()> {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let mut digest = Sha256::new();
    for root in [
        "src",
        "build.rs",
        "Cargo.toml",
        "../../core/src",
        "../../core/Cargo.toml",
    ] {
        println!("cargo::rerun-if-changed={root}");
        for file in files_below(&here.join(root))? {
            let name = file
                .strip_prefix(&here)
                .expect("it lies below")
                .to_string_lossy();
            feed(&mut digest, name.as_bytes());
            feed(&mut digest, &fs::read(&file)?);
        }
    }
    feed(&mut digest, &compiler()?);
    for name in [
        "TARGET",
        "PROFILE",
        "OPT_LEVEL",
        "DEBUG",
        "CARGO_CFG_TARGET_FEATURE",
        "CARGO_ENCODED_RUSTFLAGS",
    ] {
        println!("cargo::rerun-if-env-changed={name}");
        feed(&mut digest, env::var(name).unwrap_or_default().as_bytes());
    }
    let hex: String = digest
        .finalize()
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    println!("cargo::rustc-env=LAYERLET_CPU_BUILD_DIGEST={hex}");
    Ok(())
}

/// Files below a path (or the path itself), sorted, so that the digest does not depend on the disk.
fn files_below(path: &Path) -> io::Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.into()]);
    }
    let mut entries: Vec<PathBuf> = fs::read_dir(path)?
        .map(|entry| entry.map(|e| e.path()))
        .collect::<io::Result<_>>()?;
    entries.sort();
    entries
        .iter()
        .map(|p| files_below(p))
        .collect::<io::Result<Vec<_>>>()
        .map(|lists| lists.concat())
}

fn compiler() -> io::Result<Vec<u8>> {
    let rustc = env::var("RUSTC").expect("cargo sets it");
    Ok(Command::new(rustc).arg("-vV").output()?.stdout)
}

/// The length first, so that no two lists of pieces read alike.
fn feed(digest: &mut Sha256, piece: &[u8]) {
    digest.update((piece.len() as u64).to_le_bytes());
    digest.update(piece);
}
