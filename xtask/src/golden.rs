//! `cargo xtask golden`: proves that the backends' bytes are the reference's.

use indicatif::{ProgressBar, ProgressStyle};
use layerlet_golden::prove::{self, Options, Progress};
use layerlet_golden::report::Report;
use std::path::PathBuf;
use std::time::Duration;

#[derive(clap::Args)]
pub struct Args {
    /// Only operations, layerlets and checks whose name contains this
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// What is compared with the reference
    #[arg(long, value_enum, default_value = "all")]
    backend: Selection,
    /// Seeds of each fixture; random checks run in proportion
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
    cases: u64,
    /// Moves every random input but those that are pinned
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// The long forms too: 8,192 tokens, 20 times
    #[arg(long)]
    slow: bool,
    /// Check the checks: every planted fault must be found
    #[arg(long)]
    teeth: bool,
    /// Only this fixture file
    #[arg(long, value_name = "FILE")]
    fixture: Option<PathBuf>,
    /// Machine-readable output on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Selection {
    /// The reference alone: pins, poison, invariances
    Reference,
    /// The CPU backend
    Cpu,
    /// Every backend that is built in
    All,
}

pub fn run(args: &Args) -> Result<(), String> {
    let options = Options {
        filter: args.filter.clone(),
        cpu: args.backend != Selection::Reference,
        cases: args.cases,
        seed: args.seed,
        slow: args.slow,
        fixture: args.fixture.clone(),
    };
    match args.teeth {
        true => teeth(args, &options),
        false => prove(args, &options),
    }
}

/// On stderr, and only where that is a terminal.
struct Bar(ProgressBar);

impl Bar {
    fn new() -> Bar {
        let bar = ProgressBar::no_length();
        let template = "{elapsed_precise} [{bar:30}] {pos}/{len} {msg}";
        bar.set_style(
            ProgressStyle::with_template(template)
                .expect("the template is a constant")
                .progress_chars("=> "),
        );
        bar.enable_steady_tick(Duration::from_millis(100));
        Bar(bar)
    }
}

impl Progress for Bar {
    fn total(&self, checks: usize) {
        self.0.set_length(checks as u64);
    }

    fn next(&self, name: &str) {
        self.0.inc(1);
        self.0.set_message(name.to_string());
    }
}

fn prove(args: &Args, options: &Options) -> Result<(), String> {
    let bar = Bar::new();
    let report = prove::prove(options, &bar).map_err(|e| e.to_string())?;
    bar.0.finish_and_clear();
    match args.json {
        true => print_json(&report)?,
        false => println!("{}", report.table()),
    }
    verdict(&report)
}

fn verdict(report: &Report) -> Result<(), String> {
    for mismatch in &report.mismatches {
        eprintln!("{mismatch}");
    }
    for name in &report.new_pins {
        eprintln!("new pin, to be reviewed: {name}");
    }
    if report.rows.is_empty() {
        return Err("nothing was checked: no fixture or check passes the filter".into());
    }
    if std::env::var_os("CI").is_some() && !report.new_pins.is_empty() {
        return Err(format!("{} fixtures have no pin", report.new_pins.len()));
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

fn teeth(args: &Args, options: &Options) -> Result<(), String> {
    let bar = Bar::new();
    let teeth = prove::bite(options, &bar).map_err(|e| e.to_string())?;
    bar.0.finish_and_clear();
    match args.json {
        true => print_json(&teeth)?,
        false => println!("{}", teeth.table()),
    }
    for op in &teeth.missing {
        eprintln!("{op} has no mutant");
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

fn print_json(value: &impl serde::Serialize) -> Result<(), String> {
    let text = serde_json::to_string_pretty(value).map_err(|e| e.to_string())?;
    println!("{text}");
    Ok(())
}
