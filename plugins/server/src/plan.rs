//! `layerlet plan`.

use crate::common::{BackendKind, FolderArgs};
use crate::error::CommandError;
use crate::format;
use layerlet_core::fixture::hex;
use layerlet_core::launch::Traffic;
use layerlet_core::plan::{
    Capacity, Cost, Head, ModelLayout, ModelSpec, Plan, StepShape, forward, fuse,
};
use layerlet_engine::checkpoint::{Checkpoint, Config, INDEX, SINGLE};
use layerlet_engine::{EngineError, PAGE_SIZE};
use serde::Serialize;
use std::path::Path;

/// Launches, bytes moved and memory of one step. Needs config.json; where safetensors are beside it,
/// they decide what is int8.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  layerlet plan --model DIR --tokens 1
  layerlet plan --model DIR --tokens 2048 --sequences 4 --unfused --each

Bytes are a range where routes or lengths decide: the least that any step of this size moves, and the
most. An operand that a fused kernel keeps on the chip moves nothing.")]
pub struct Args {
    #[command(flatten)]
    folder: FolderArgs,
    /// Rows of the step, over all sequences
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    tokens: u32,
    /// Sequences in the step
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    sequences: u32,
    /// Positions that each sequence has room for
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
    context: u32,
    /// Whose fused kernels are used
    #[arg(long, value_enum, default_value = "cpu")]
    backend: BackendKind,
    /// No fused kernels
    #[arg(long)]
    unfused: bool,
    /// One line for each launch instead of one for each operation
    #[arg(long)]
    each: bool,
    /// JSON on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    digest: String,
    launches: usize,
    cost: Cost,
}

pub fn run(args: &Args) -> Result<(), CommandError> {
    let plan = build(args)?;
    let cost = plan.cost();
    if args.json {
        return format::json(&Report {
            digest: hex(&plan.digest()),
            launches: plan.launches.len(),
            cost,
        });
    }
    let rows = match args.each {
        true => each(&cost),
        false => by_operation(&cost),
    };
    let header = ["operation", "launches", "bytes at least", "bytes at most"];
    format::line(&format::table(&header, 1, rows).to_string())?;
    let memory = &cost.memory;
    let rows = [
        ("weights", memory.weights),
        ("state", memory.state),
        ("step data", memory.step),
        ("scratch and outputs", memory.scratch),
        ("  of it alive at once", memory.scratch_peak),
    ];
    let rows = rows.map(|(name, n)| vec![name.into(), format::bytes(n), n.to_string()]);
    format::line(&format::table(&["memory", "", "bytes"], 1, rows).to_string())
}

fn spec(dir: &Path) -> Result<ModelSpec, EngineError> {
    match dir.join(SINGLE).exists() || dir.join(INDEX).exists() {
        true => Ok(Checkpoint::open(dir)?.spec()),
        false => Ok(Config::open(dir)?.announced_spec()),
    }
}

fn build(args: &Args) -> Result<Plan, CommandError> {
    let (tokens, sequences) = (args.tokens as usize, args.sequences as usize);
    let pages = (args.context as usize).div_ceil(PAGE_SIZE);
    let capacity = Capacity {
        state_slots: sequences,
        kv_pages: sequences * pages,
        page_size: PAGE_SIZE,
        max_positions: args.context as usize,
    };
    let spec = spec(&args.folder.path()?)?;
    let layout = ModelLayout::new(spec, capacity).map_err(EngineError::from)?;
    let shape = StepShape {
        tokens,
        sequences,
        outputs: sequences.min(tokens),
        pages_per_sequence: pages,
        head: Head::Argmax,
        verify: false,
        trace: false,
    };
    let plan = forward(&layout, &shape).map_err(EngineError::from)?;
    Ok(match args.unfused {
        true => plan,
        false => fuse(&plan, args.backend.backend(None)?.layerlets()),
    })
}

fn row(name: String, launches: String, traffic: Traffic) -> Vec<String> {
    vec![
        name,
        launches,
        format::bytes(traffic.min),
        format::bytes(traffic.max),
    ]
}

fn total(cost: &Cost) -> Vec<String> {
    row("all".into(), cost.launches.len().to_string(), cost.traffic)
}

fn each(cost: &Cost) -> Vec<Vec<String>> {
    let launches = cost.launches.iter().enumerate();
    launches
        .map(|(n, (name, traffic))| row(name.clone(), format!("#{n}"), *traffic))
        .chain([total(cost)])
        .collect()
}

/// Operations in order of their first launch.
fn by_operation(cost: &Cost) -> Vec<Vec<String>> {
    let mut sums: Vec<(&str, usize, Traffic)> = Vec::new();
    for (name, traffic) in &cost.launches {
        match sums.iter_mut().find(|(known, ..)| known == name) {
            Some((_, count, sum)) => {
                *count += 1;
                sum.min += traffic.min;
                sum.max += traffic.max;
            }
            None => sums.push((name, 1, *traffic)),
        }
    }
    sums.into_iter()
        .map(|(name, count, sum)| row(name.into(), count.to_string(), sum))
        .chain([total(cost)])
        .collect()
}
