//! `layerlet canary`: questions with one right answer, to a model folder or to servers.

mod file;
mod local;
mod remote;

use crate::common::ModelArgs;
use crate::error::CommandError;
use std::path::PathBuf;

/// Asks questions that have one right answer each, greedily, and fails when an answer is wrong.
///
/// Of a model folder: a damaged weight, a wrong chat template or a wrong tokenizer shows in the answers,
/// where a sample of free text may still read well. Of servers (--url, any that speaks the OpenAI API):
/// every question is asked many times, alone and among others, and an answer that is not the same each
/// time is a failure too, be it right or not.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  layerlet canary
  layerlet canary --model DIR --canaries questions.json --json
  layerlet canary --url http://localhost:8000
  layerlet canary --url http://old:8000 --url http://new:8000 --concurrency 1,16 --repeats 20

The file holds lists by kind: {\"sums\": [{\"messages\": [{\"role\": \"user\", \"content\": \"1 + 1?\"}], \"answer\": \"2\"}]}")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// The questions [default: canaries.json in the model's folder, or in the folder around it; of
    /// servers those that the field asks: JSON, colours, copying, sums, a long context]
    #[arg(long, value_name = "FILE")]
    canaries: Option<PathBuf>,
    /// Let the model think first, where its chat template can
    #[arg(long)]
    thinking: bool,
    /// Most tokens of an answer
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..))]
    max_tokens: u16,
    /// One JSON document on stdout
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    servers: remote::ServerArgs,
}

pub fn run(args: &Args) -> Result<(), CommandError> {
    match args.servers.urls.is_empty() {
        true => local::run(args),
        false => remote::run(args),
    }
}
