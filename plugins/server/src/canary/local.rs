//! Canaries of a model folder: this process loads it and answers.

use super::Args;
use super::file::{self, Canary};
use crate::error::CommandError;
use crate::format;
use layerlet_core::plan::SamplingParams;
use layerlet_engine::{ChatTemplate, Model, Request, Tokenizer, generate};
use serde::Serialize;
use serde_json::json;
use std::ops::ControlFlow;
use std::path::Path;

/// What became of the canaries of one kind.
#[derive(Serialize)]
struct Outcome {
    kind: String,
    passed: usize,
    of: usize,
    wrong: Vec<Wrong>,
}

/// A canary that failed.
#[derive(Serialize)]
struct Wrong {
    question: String,
    expected: String,
    found: String,
}

pub fn run(args: &Args) -> Result<(), CommandError> {
    let folder = args.model.folder.path()?;
    let path = args.canaries.clone();
    let path = path.map_or_else(|| file::beside(&folder), Ok)?;
    let canaries = file::read(&path)?;
    let mut asked = Asked::open(args, &folder, canaries.values().flatten())?;
    let mut outcomes = Vec::new();
    for (kind, canaries) in &canaries {
        outcomes.push(asked.outcome(kind, canaries)?);
    }
    report(&path, &outcomes, args.json)?;
    let failed = outcomes.iter().map(|o| o.wrong.len()).sum();
    let of = outcomes.iter().map(|o| o.of).sum();
    match failed {
        0 => Ok(()),
        failed => Err(CommandError::Canaries { failed, of }),
    }
}

/// The model with all that turns a question into its answer.
struct Asked {
    tokenizer: Tokenizer,
    template: ChatTemplate,
    model: Model,
    stop: Vec<u32>,
    thinking: bool,
    max_tokens: usize,
}

impl Asked {
    /// Loads the model with room for the longest question.
    fn open<'a>(
        args: &Args,
        folder: &Path,
        canaries: impl Iterator<Item = &'a Canary>,
    ) -> Result<Asked, CommandError> {
        let missing = |what| CommandError::file(folder, format!("has no {what}"));
        let tokenizer = Tokenizer::open(folder)?.ok_or_else(|| missing("tokenizer.json"))?;
        let template = ChatTemplate::open(folder)?.ok_or_else(|| missing("chat template"))?;
        let mut longest = 0;
        for canary in canaries {
            let text = template.prompt(&canary.messages, args.thinking)?;
            longest = longest.max(tokenizer.encode(&text)?.len());
        }
        let max_tokens = usize::from(args.max_tokens);
        let checkpoint = args.model.open()?;
        Ok(Asked {
            // The last token is not fed again.
            model: args.model.load(&checkpoint, longest + max_tokens - 1)?,
            stop: checkpoint.config.eos,
            thinking: args.thinking,
            tokenizer,
            template,
            max_tokens,
        })
    }

    fn outcome(&mut self, kind: &str, canaries: &[Canary]) -> Result<Outcome, CommandError> {
        let mut wrong = Vec::new();
        for canary in canaries {
            let found = self.answer(canary)?;
            if !canary.accepts(&found) {
                wrong.push(Wrong {
                    question: canary.question().into(),
                    expected: canary.answer.clone(),
                    found,
                });
            }
        }
        Ok(Outcome {
            kind: kind.into(),
            passed: canaries.len() - wrong.len(),
            of: canaries.len(),
            wrong,
        })
    }

    fn answer(&mut self, canary: &Canary) -> Result<String, CommandError> {
        let text = self.template.prompt(&canary.messages, self.thinking)?;
        let prompt = self.tokenizer.encode(&text)?;
        let request = Request {
            prompt: &prompt,
            max_tokens: self.max_tokens,
            sampling: SamplingParams::default(),
            stop_ids: &self.stop,
            chunk: prompt.len().max(1),
        };
        let generated = generate(&mut self.model, &request, |_| ControlFlow::Continue(()))?;
        Ok(self.tokenizer.decode(&generated.tokens)?)
    }
}

fn report(path: &Path, outcomes: &[Outcome], json: bool) -> Result<(), CommandError> {
    if json {
        return format::json(&json!({ "canaries": path, "kinds": outcomes }));
    }
    let rows = outcomes.iter().map(|o| {
        let numbers = [o.passed, o.of].map(|n| n.to_string());
        [o.kind.clone()].into_iter().chain(numbers).collect()
    });
    let table = format::table(&["canaries", "passed", "of"], 1, rows);
    format::line(&table.to_string())?;
    for wrong in outcomes.iter().flat_map(|o| &o.wrong) {
        format::line(&format!(
            "\n{}\n  expected {:?}\n  found    {:?}",
            wrong.question, wrong.expected, wrong.found
        ))?;
    }
    Ok(())
}
