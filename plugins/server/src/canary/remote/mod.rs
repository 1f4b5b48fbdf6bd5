//! Canaries of servers: every question many times over, alone and among others.
//!
//! Two things can be wrong with an answer: that it is not the right one, and that it is not the one
//! given before. A server whose batch changes its sums shows the second long before the first.

mod ask;
mod question;
mod verdict;

use super::{Args, file};
use crate::error::CommandError;
use crate::format;
use ask::{Answer, Server};
use indicatif::{ProgressBar, ProgressStyle};
use question::Question;
use serde_json::json;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use verdict::Verdict;

/// Flags that only servers have.
#[derive(clap::Args)]
#[command(next_help_heading = "Servers")]
pub struct ServerArgs {
    /// A server to ask instead of a model folder, with or without /v1; repeat it to compare servers
    #[arg(long = "url", value_name = "URL")]
    pub urls: Vec<String>,
    /// Name of the model to ask for [default: the first that the server lists]
    #[arg(long, value_name = "NAME", requires = "urls")]
    served_model: Option<String>,
    /// Sent as a bearer token
    #[arg(
        long,
        value_name = "KEY",
        env = "OPENAI_API_KEY",
        hide_env_values = true
    )]
    api_key: Option<String>,
    /// How often each question is asked at each concurrency
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    repeats: u16,
    /// How many requests are in flight at once
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,8", value_parser = clap::value_parser!(u16).range(1..=1024))]
    concurrency: Vec<u16>,
    /// Lines of the long context; about 15 tokens each
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(2..=30_000))]
    lines: u16,
    /// Draws other questions of the same kinds
    #[arg(long, value_name = "N", default_value_t = 0)]
    questions_seed: u64,
    /// A JSON object whose fields go into every request
    #[arg(long, value_name = "JSON", requires = "urls")]
    extra: Option<String>,
    /// Longest wait for one answer
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    timeout: u32,
}

/// One answer, or why there was none.
type Said = Result<Answer, String>;

/// Everything one server said to one question, by concurrency.
type Heard = Vec<(u16, Vec<Said>)>;

pub fn run(args: &Args) -> Result<(), CommandError> {
    let questions = questions(args)?;
    let servers: Vec<Server> = (args.servers.urls.iter())
        .map(|url| Server::open(url, args))
        .collect::<Result<_, _>>()?;
    let heard: Vec<Vec<Heard>> = (servers.iter())
        .map(|server| interview(server, &questions, &args.servers))
        .collect();
    let names: Vec<&str> = servers.iter().map(|s| s.url.as_str()).collect();
    let verdicts: Vec<Verdict> = (questions.iter().enumerate())
        .map(|(i, question)| {
            let heard: Vec<&Heard> = heard.iter().map(|server| &server[i]).collect();
            Verdict::new(question, &names, &heard)
        })
        .collect();
    match args.json {
        true => format::json(&json!({
            "servers": servers.iter().map(|s| json!({"url": s.url, "model": s.model})).collect::<Vec<_>>(),
            "repeats": args.servers.repeats,
            "concurrency": args.servers.concurrency,
            "questions": verdicts,
        }))?,
        false => verdict::print(&names, &verdicts)?,
    }
    match verdicts.iter().filter(|v| !v.problems.is_empty()).count() {
        0 => Ok(()),
        failed => Err(CommandError::Canaries {
            failed,
            of: verdicts.len(),
        }),
    }
}

fn questions(args: &Args) -> Result<Vec<Question>, CommandError> {
    let Some(path) = &args.canaries else {
        return Ok(question::of_the_field(
            args.servers.questions_seed,
            usize::from(args.servers.lines),
        ));
    };
    let canaries = file::read(path)?.into_iter();
    Ok(canaries
        .flat_map(|(kind, of_kind)| {
            (of_kind.into_iter()).map(move |canary| Question::from_file(&kind, canary))
        })
        .collect())
}

/// Asks one server everything. The requests of one concurrency go out in an order in which neighbours
/// are different questions, so that those in flight together are too.
fn interview(server: &Server, questions: &[Question], args: &ServerArgs) -> Vec<Heard> {
    let repeats = usize::from(args.repeats);
    let total = questions.len() * repeats * args.concurrency.len();
    let bar = ProgressBar::new(total as u64).with_prefix(server.url.clone());
    bar.set_style(
        ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len} answers")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let mut heard: Vec<Heard> = questions.iter().map(|_| Vec::new()).collect();
    for &concurrency in &args.concurrency {
        let said: Vec<Mutex<Vec<Said>>> = questions.iter().map(|_| Mutex::default()).collect();
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..concurrency {
                scope.spawn(|| {
                    loop {
                        let job = next.fetch_add(1, Ordering::Relaxed);
                        if job >= questions.len() * repeats {
                            return;
                        }
                        let which = job % questions.len();
                        let answer = server.ask(&questions[which]);
                        let mut said = said[which].lock().unwrap_or_else(|e| e.into_inner());
                        said.push(answer);
                        bar.inc(1);
                    }
                });
            }
        });
        for (heard, said) in heard.iter_mut().zip(said) {
            let said = said.into_inner().unwrap_or_else(|e| e.into_inner());
            heard.push((concurrency, said));
        }
    }
    bar.finish_and_clear();
    heard
}
