//! The command line of `cargo xtask golden`.

use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  cargo xtask golden                               everything: kernels, routes, models, mutants; attests
  cargo xtask golden --filter rms_norm             one operation, after a change to it
  cargo xtask golden --filter moe_layer            a layerlet with its routes
  cargo xtask golden --filter 'routes, hot' --cases 50
  cargo xtask golden --fixture golden/fixtures/rope/rows.toml
  cargo xtask golden --teeth --filter sample       only the mutants, as a table
  cargo xtask golden --slow --seed 7               more, and other, random inputs
  cargo xtask golden --external dumps              kernels of other frameworks, see golden/EXTERNAL.md
  cargo xtask golden --json > report.json

Exit code 0: every byte is right and every mutant caught. 1: something is not, or an input is
unusable. 2: the command line is wrong. golden/README.md shows how to read a mismatch.";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only operations, layerlets and checks whose name contains this
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
    /// What is compared with the reference
    #[arg(long, value_enum, default_value = "all")]
    pub backend: Selection,
    /// Seeds of each fixture; random routes (8 a kind) and ways through a model (3 a family) in proportion
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
    pub cases: u64,
    /// Moves every random input but those that are pinned
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// The long text: 8,192 tokens 20 times instead of 512 tokens 5 times (minutes)
    #[arg(long)]
    pub slow: bool,
    /// Only check the checks, as a table: every planted fault must be found
    #[arg(long, conflicts_with = "fixture")]
    pub teeth: bool,
    /// Only this fixture file: a recipe (.toml), or a launch that shadow verification kept (.llfx)
    #[arg(long, value_name = "FILE")]
    pub fixture: Option<PathBuf>,
    /// Only compare the dumps of other kernels in this folder
    #[arg(long, value_name = "DIR", conflicts_with_all = ["filter", "fixture", "teeth", "attestation"])]
    pub external: Option<PathBuf>,
    /// Where the attestation of a complete run goes, beside it as .llat the bytes for hosts
    /// [default: target/golden/attestation.json]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["filter", "fixture", "teeth"])]
    pub attestation: Option<PathBuf>,
    /// Machine-readable output on stdout
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Selection {
    /// The reference alone: pins, poison, invariances
    Reference,
    /// The CPU backend
    Cpu,
    /// Every backend that is built in
    All,
}
