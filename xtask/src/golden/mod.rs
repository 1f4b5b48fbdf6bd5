//! `cargo xtask golden`: proves that the backends' bytes are the reference's.

mod args;
mod bar;

pub use args::Args;

use args::Selection;
use bar::Bar;
use layerlet_golden::attest::{self, NoAttestation};
use layerlet_golden::external;
use layerlet_golden::prove::{self, Options};
use layerlet_golden::report::Report;
use layerlet_golden::teeth::Teeth;
use serde::Serialize;
use serde_json::json;
use std::path::{Path, PathBuf};

pub fn run(args: &Args) -> Result<(), String> {
    if let Some(folder) = &args.external {
        return compare_external(folder, args.json);
    }
    let options = Options {
        filter: args.filter.clone(),
        cpu: matches!(args.backend, Selection::Cpu | Selection::Host),
        wgpu: args.backend == Selection::Wgpu,
        cases: args.cases,
        seed: args.seed,
        slow: args.slow,
        fixture: args.fixture.clone(),
    };
    match args.teeth {
        true => bite_only(args, &options),
        false => prove(args, &options),
    }
}

fn prove(args: &Args, options: &Options) -> Result<(), String> {
    let bar = Bar::new();
    let report = prove::prove(options, &bar).map_err(|e| e.to_string())?;
    // One file says nothing of the mutants that other files are for.
    let teeth = match options.fixture {
        Some(_) => None,
        None => Some(prove::bite(options, &bar).map_err(|e| e.to_string())?),
    };
    bar.clear();
    let attested = attest(args, options, &report, teeth.as_ref());
    match args.json {
        true => print_json(&json!({
            "rows": report.rows,
            "cases": report.cases(),
            "mismatches": report.mismatches,
            "new_pins": report.new_pins,
            "stale_pins": report.stale_pins,
            "unproved": report.unproved,
            "teeth": teeth,
            "seconds": report.seconds,
            "attestation": attested.as_ref().ok(),
            "not_attested": attested.as_ref().err().map(ToString::to_string),
        }))?,
        false => println!("{}", report.table()),
    }
    let outcome = verdict(&report).and(teeth.as_ref().map_or(Ok(()), bitten));
    match (attested, &args.attestation) {
        (Ok(files), _) => eprintln!("attested: {}", files[0].display()),
        (Err(why), Some(path)) => {
            return outcome.and(Err(format!("{} is not written: {why}", path.display())));
        }
        (Err(why), None) => eprintln!("not attested: {why}"),
    }
    outcome
}

fn attest(
    args: &Args,
    options: &Options,
    report: &Report,
    teeth: Option<&Teeth>,
) -> Result<[PathBuf; 2], NoAttestation> {
    let usual = || crate::command::root().join("target/golden/attestation.json");
    let path = args.attestation.clone().unwrap_or_else(usual);
    attest::write(&attest::attest(options, report, teeth)?, &path)
}

/// Mismatches that are shown; one fault tends to have hundreds.
const SHOWN: usize = 20;

fn verdict(report: &Report) -> Result<(), String> {
    for mismatch in report.mismatches.iter().take(SHOWN) {
        eprintln!("{mismatch}");
    }
    if let Some(more) = report.mismatches.len().checked_sub(SHOWN + 1) {
        eprintln!("and {} more; --json shows all of them", more + 1);
    }
    for name in &report.new_pins {
        eprintln!("new pin, to be reviewed: {name}");
    }
    for path in &report.stale_pins {
        eprintln!("no fixture has this pin: {path}");
    }
    for name in &report.unproved {
        eprintln!("not proved by this run, the processor lacks its instructions: {name}");
    }
    if report.rows.is_empty() {
        return Err("nothing was checked: no fixture or check passes the filter".into());
    }
    if std::env::var_os("CI").is_some() && !report.new_pins.is_empty() {
        return Err(format!("{} fixtures have no pin", report.new_pins.len()));
    }
    if !report.stale_pins.is_empty() {
        return Err(format!("{} pins have no fixture", report.stale_pins.len()));
    }
    let (cases, failed) = (report.cases(), report.mismatches.len());
    let line = format!(
        "{cases} cases, {failed} mismatches, {:.1} s",
        report.seconds
    );
    match failed {
        0 => {
            eprintln!("{line}");
            Ok(())
        }
        _ => Err(line),
    }
}

fn bite_only(args: &Args, options: &Options) -> Result<(), String> {
    let bar = Bar::new();
    let teeth = prove::bite(options, &bar).map_err(|e| e.to_string())?;
    bar.clear();
    match args.json {
        true => print_json(&teeth)?,
        false => println!("{}", teeth.table()),
    }
    match teeth.bites.is_empty() && teeth.missing.is_empty() {
        true => Err("no mutant passes the filter".into()),
        false => bitten(&teeth),
    }
}

fn bitten(teeth: &Teeth) -> Result<(), String> {
    for op in &teeth.missing {
        eprintln!("{op} has no mutant");
    }
    for bite in teeth.bites.iter().filter(|b| !b.caught) {
        eprintln!("{}: nothing finds a kernel that {}", bite.op, bite.fault);
    }
    for bite in teeth.bites.iter().filter(|b| !b.control) {
        eprintln!(
            "{}: the mutant that {} fails without its fault",
            bite.op, bite.fault
        );
    }
    let caught = teeth.bites.iter().filter(|b| b.caught && b.control).count();
    let line = format!("{caught} of {} mutants caught", teeth.bites.len());
    match teeth.hold() {
        true => {
            eprintln!("{line}");
            Ok(())
        }
        false => Err(line),
    }
}

fn compare_external(folder: &Path, json: bool) -> Result<(), String> {
    let found = external::compare_folder(folder).map_err(|e| e.to_string())?;
    match json {
        true => print_json(&found)?,
        false => println!("{}", external::table(&found)),
    }
    let differing = found.iter().filter(|c| c.equal < c.elements);
    let mut count = 0;
    for c in differing {
        count += 1;
        eprintln!(
            "{} {}: {}",
            c.file,
            c.output,
            c.first.as_deref().unwrap_or_default()
        );
    }
    match count {
        0 => Ok(()),
        _ => Err(format!(
            "{count} of {} outputs differ from the reference",
            found.len()
        )),
    }
}

fn print_json(value: &impl Serialize) -> Result<(), String> {
    let text = serde_json::to_string_pretty(value).map_err(|e| e.to_string())?;
    println!("{text}");
    Ok(())
}
