//! `layerlet generate`.

use crate::common::ModelArgs;
use crate::error::CommandError;
use crate::shadow::{self, ShadowArgs};
use crate::{format, ids};
use layerlet_core::plan::SamplingParams;
use layerlet_engine::{Finish, Generated, Options, Request, TextStream, Tokenizer, generate};
use serde_json::json;
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Continues a prompt, token by token.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  layerlet generate 'It is a truth'
  layerlet generate --model DIR --temperature 0.8 --top-p 0.95 --seed 7 'It is a truth'
  layerlet generate --model DIR --ids 17,4,99 --max-tokens 8 --json
  echo 'It is a truth' | layerlet generate --model DIR -

The same prompt, flags and seed give the same tokens on every backend, with any --chunk.")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    prompt: PromptArgs,
    /// Most tokens to generate
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: u32,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Go on after the token that ends a text
    #[arg(long)]
    ignore_eos: bool,
    /// Prompt tokens in one step
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    chunk: u32,
    /// One JSON document on stdout, at the end
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    shadow: ShadowArgs,
}

/// One of the two.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct PromptArgs {
    /// Text to continue; `-` reads it from standard input
    prompt: Option<String>,
    /// Token ids instead of text: a list, or a file (text, JSON, safetensors); prints ids
    #[arg(long, value_name = "FILE|LIST")]
    ids: Option<String>,
}

/// How tokens are drawn: what is not given is as the checkpoint's generation_config.json says, or off.
#[derive(clap::Args)]
struct SamplingArgs {
    /// 0 takes the most likely token
    #[arg(long, allow_negative_numbers = true)]
    temperature: Option<f32>,
    /// Only the K most likely tokens; 0 is off
    #[arg(long, value_name = "K")]
    top_k: Option<u32>,
    /// Only the most likely tokens that reach this probability together; 1 is off
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    top_p: Option<f32>,
    /// Only tokens of at least this share of the likeliest one's probability; 0 is off
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    min_p: Option<f32>,
    /// Divides the logits of tokens seen in prompt or text; 1 is off
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    repetition_penalty: Option<f32>,
    /// Subtracted from tokens seen in the text
    #[arg(
        long,
        value_name = "X",
        default_value_t = 0.0,
        allow_negative_numbers = true
    )]
    presence_penalty: f32,
    /// Subtracted for each time that a token is in the text
    #[arg(
        long,
        value_name = "X",
        default_value_t = 0.0,
        allow_negative_numbers = true
    )]
    frequency_penalty: f32,
    /// Seed of the draws
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

impl SamplingArgs {
    fn over(&self, checkpoint: &SamplingParams) -> SamplingParams {
        SamplingParams {
            temperature: self.temperature.unwrap_or(checkpoint.temperature),
            top_k: self.top_k.unwrap_or(checkpoint.top_k),
            top_p: self.top_p.unwrap_or(checkpoint.top_p),
            min_p: self.min_p.unwrap_or(checkpoint.min_p),
            repetition_penalty: self
                .repetition_penalty
                .unwrap_or(checkpoint.repetition_penalty),
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            seed: self.seed,
        }
    }
}

pub fn run(args: &Args) -> Result<(), CommandError> {
    let checkpoint = args.model.open()?;
    // Ids in, ids out; text in, text out.
    let tokenizer = match &args.prompt.ids {
        Some(_) => None,
        None => Tokenizer::open(&args.model.folder.path()?)?,
    };
    let prompt = prompt(args, tokenizer.as_ref(), checkpoint.config.model.vocab)?;
    let request = Request {
        prompt: &prompt,
        max_tokens: args.max_tokens as usize,
        sampling: args.sampling.over(&checkpoint.config.sampling),
        stop_ids: if args.ignore_eos {
            &[]
        } else {
            &checkpoint.config.eos
        },
        chunk: args.chunk as usize,
    };
    request
        .sampling
        .validate()
        .map_err(layerlet_engine::EngineError::from)?;
    let (backend, shadow) = args.shadow.watch(args.model.make_backend()?);
    // The last token is not fed again.
    let positions = prompt.len().saturating_add(args.max_tokens as usize - 1);
    let capacity = Options::for_one_sequence(positions).capacity;
    let mut model = (args.model).load_on(&checkpoint, capacity, backend.as_ref())?;
    let text = tokenizer.as_ref();
    let mut printer = Printer::new(text, args.json);
    let mut clock = Clock::start();
    let mut failure = None;
    let generated = generate(&mut model, &request, |token| {
        clock.tick();
        match printer.push(token) {
            Ok(()) => ControlFlow::Continue(()),
            Err(e) => {
                failure = Some(e);
                ControlFlow::Break(())
            }
        }
    })?;
    if let Some(error) = failure {
        return Err(error);
    }
    let all = printer.finish()?;
    if args.json {
        let text = text.is_some().then_some(all);
        report(&prompt, &generated, text, &clock)?;
    } else {
        eprintln!("{}", clock.summary(prompt.len()));
    }
    shadow::conclude(shadow.as_ref())
}

fn prompt(
    args: &Args,
    tokenizer: Option<&Tokenizer>,
    vocab: usize,
) -> Result<Vec<u32>, CommandError> {
    let text = match (&args.prompt.ids, &args.prompt.prompt) {
        (Some(ids), _) => return ids::read(ids, vocab),
        (None, Some(text)) if text == "-" => {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .map_err(|e| CommandError::argument("standard input", e))?;
            text.strip_suffix('\n').map(str::to_string).unwrap_or(text)
        }
        (None, text) => text.clone().unwrap_or_default(),
    };
    let folder = args.model.folder.path()?;
    let missing = "has no tokenizer.json; give token ids with --ids";
    let tokenizer = tokenizer.ok_or_else(|| CommandError::file(&folder, missing))?;
    match tokenizer.encode(&text)? {
        ids if ids.is_empty() => Err(CommandError::argument("the prompt", "is empty")),
        ids => Ok(ids),
    }
}

/// Prints as tokens come, or keeps the text for the report.
struct Printer<'a> {
    stream: Option<TextStream<'a>>,
    quiet: bool,
    tokens: usize,
    all: String,
}

impl<'a> Printer<'a> {
    fn new(tokenizer: Option<&'a Tokenizer>, quiet: bool) -> Printer<'a> {
        Printer {
            stream: tokenizer.map(Tokenizer::stream),
            quiet,
            tokens: 0,
            all: String::new(),
        }
    }

    fn push(&mut self, token: u32) -> Result<(), CommandError> {
        let text = match &mut self.stream {
            Some(stream) => stream.push(token)?,
            None if self.tokens == 0 => token.to_string(),
            None => format!(",{token}"),
        };
        self.tokens += 1;
        self.say(&text)
    }

    fn say(&mut self, text: &str) -> Result<(), CommandError> {
        self.all.push_str(text);
        if !self.quiet {
            let mut out = std::io::stdout().lock();
            out.write_all(text.as_bytes())?;
            out.flush()?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<String, CommandError> {
        if let Some(stream) = self.stream.take() {
            self.say(&stream.finish()?)?;
        }
        if !self.quiet {
            format::line("")?;
        }
        Ok(self.all)
    }
}

/// The first token ends the prompt's part, the others are decoding.
struct Clock {
    started: Instant,
    first: Option<Duration>,
    tokens: usize,
    last: Duration,
}

impl Clock {
    fn start() -> Clock {
        Clock {
            started: Instant::now(),
            first: None,
            tokens: 0,
            last: Duration::ZERO,
        }
    }

    fn tick(&mut self) {
        self.last = self.started.elapsed();
        self.first.get_or_insert(self.last);
        self.tokens += 1;
    }

    fn prefill_seconds(&self) -> f64 {
        self.first.unwrap_or_default().as_secs_f64()
    }

    /// Tokens per second after the first, if there are any.
    fn decode_rate(&self) -> Option<f64> {
        let seconds = self.last.as_secs_f64() - self.prefill_seconds();
        (self.tokens > 1 && seconds > 0.0).then(|| (self.tokens - 1) as f64 / seconds)
    }

    fn summary(&self, prompt: usize) -> String {
        let prefill = self.prefill_seconds();
        let decode = match self.decode_rate() {
            Some(rate) => format!(", then {rate:.1} tokens/s"),
            None => String::new(),
        };
        format!("{prompt} tokens of prompt in {prefill:.2} s{decode}")
    }
}

fn report(
    prompt: &[u32],
    generated: &Generated,
    text: Option<String>,
    clock: &Clock,
) -> Result<(), CommandError> {
    let finish = match generated.finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
        Finish::Cancelled => "cancelled",
    };
    format::json(&json!({
        "prompt_ids": prompt,
        "ids": generated.tokens,
        "text": text,
        "finish": finish,
        "prefill_seconds": clock.prefill_seconds(),
        "decode_tokens_per_second": clock.decode_rate(),
    }))
}
