//! `layerlet bench`.

mod report;
mod tables;

use crate::common::ModelArgs;
use crate::error::CommandError;
use crate::format;
use indicatif::ProgressBar;
use layerlet_engine::bench::{Report, Settings, measure};
use std::path::PathBuf;
use std::time::Duration;

/// Tokens per second, time to first token, bytes per token, and how much of the memory's read bandwidth
/// that is.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  layerlet bench --model DIR
  layerlet bench --model DIR --batch 1,2,4,8 --context 4096 --json
  layerlet bench --model DIR --unfused --generate 16

  layerlet bench --model DIR --report out    # out/index.html with charts, out/report.json

Ids are random, but the same for the same seed. Repeats of prefill, decode and the bandwidth alternate; medians
are shown with the lowest and the highest. Bytes are counted from the plan with the routes that the model really
takes, every byte once for each step. Times of single launches are a little longer than in a step that runs
undivided.")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// Tokens of the prompt
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    prompt: u32,
    /// Prompt tokens in one step
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    chunk: u32,
    /// Tokens to decode for each sequence
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    generate: u32,
    /// Tokens of each sequence before the first decoded one [default: as the prompt]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=1 << 20))]
    context: Option<u32>,
    /// Sequences decoded together; each number is measured, operations are those of the first [default: 1,
    /// with --report 1,2,4,8]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=1024))]
    batch: Vec<u16>,
    /// Further contexts that one sequence is decoded after, ascending [default: none, with --report 2, 4 and 8
    /// times --context]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    contexts: Vec<u32>,
    /// Timed repeats
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    repeats: u16,
    /// Seed of the token ids
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Size of the buffer read for the bandwidth; must be several times the last cache's
    #[arg(long, value_name = "MIB", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    read_buffer: u32,
    /// Only tokens per second, time to first token and memory: no bandwidth, bytes or operations
    #[arg(long, conflicts_with = "report")]
    brief: bool,
    /// Write a page with charts, and its numbers, into this folder
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// JSON on stdout
    #[arg(long)]
    json: bool,
}

/// Batches of a report that names none.
const REPORT_BATCHES: [usize; 4] = [1, 2, 4, 8];

impl Args {
    fn settings(&self, max_position: usize) -> Settings {
        let mut settings = Settings {
            prompt: self.prompt as usize,
            chunk: self.chunk as usize,
            generate: self.generate as usize,
            context: self.context.unwrap_or(self.prompt) as usize,
            batches: self.batch.iter().map(|&b| b.into()).collect(),
            contexts: self.contexts.iter().map(|&c| c as usize).collect(),
            repeats: self.repeats.into(),
            seed: self.seed,
            read_buffer: (!self.brief).then_some((self.read_buffer as usize) << 20),
        };
        if settings.batches.is_empty() {
            settings.batches = match self.report {
                Some(_) => REPORT_BATCHES.to_vec(),
                None => vec![1],
            };
        }
        if settings.contexts.is_empty() && self.report.is_some() {
            settings.contexts = further_contexts(&settings, max_position);
        }
        settings
    }
}

/// Those of 2, 4 and 8 times the context that the model has room for.
fn further_contexts(settings: &Settings, max_position: usize) -> Vec<usize> {
    let room = max_position.saturating_sub(settings.generate);
    let contexts = [2, 4, 8].map(|times| times * settings.context);
    let fits = |context: &usize| settings.context < *context && *context <= room;
    contexts.into_iter().filter(fits).collect()
}

pub fn run(args: &Args) -> Result<(), CommandError> {
    let checkpoint = args.model.open()?;
    let settings = args.settings(checkpoint.config.model.max_position);
    settings.validate()?;
    if let Some(dir) = &args.report {
        report::prepare(dir)?;
    }
    let mut model = args.model.load_with(&checkpoint, settings.capacity())?;
    let device = args.model.backend.backend(args.model.threads)?.identity();
    let spinner = ProgressBar::new_spinner();
    spinner.enable_steady_tick(Duration::from_millis(100));
    let say = |what: &str| spinner.set_message(what.to_string());
    let report = measure(&mut model, device, args.model.threads(), &settings, say)?;
    spinner.finish_and_clear();
    if let Some(dir) = &args.report {
        report::write(dir, &args.model.folder.path()?, &report)?;
    }
    match args.json {
        true => format::json(&report),
        false => tables::print(&report),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_double_while_there_is_room() {
        let settings = |context| Settings {
            prompt: 512,
            chunk: 512,
            generate: 64,
            context,
            batches: vec![1],
            contexts: Vec::new(),
            repeats: 1,
            seed: 0,
            read_buffer: None,
        };
        assert_eq!(
            further_contexts(&settings(512), 1 << 18),
            [1024, 2048, 4096]
        );
        assert_eq!(further_contexts(&settings(512), 2112), [1024, 2048]);
        assert!(further_contexts(&settings(0), 1 << 18).is_empty());
    }
}
