//! What the answers to one question say of the servers that gave them.

use super::ask::Answer;
use super::question::Question;
use super::{Heard, Said};
use crate::error::CommandError;
use crate::format;
use serde::Serialize;
use std::collections::BTreeMap;

/// One question, all that was said to it, and what is wrong with that.
#[derive(Serialize)]
pub struct Verdict {
    /// What the question is about.
    pub kind: String,
    question: String,
    expected: String,
    /// Answers that differ from one another, by server, in the order in which they came.
    answers: Vec<Given>,
    /// Empty when all is well.
    pub problems: Vec<Problem>,
}

/// One answer of one server.
#[derive(Serialize)]
struct Given {
    server: String,
    #[serde(flatten)]
    answer: Answer,
    right: bool,
    /// How often it was given, by the number of requests in flight.
    times: BTreeMap<u16, usize>,
}

/// What is wrong with the answers to a question.
#[derive(Serialize)]
pub struct Problem {
    /// By whom.
    server: String,
    /// Of which sort.
    what: What,
    /// What happened.
    message: String,
}

/// Sorts of problems; the columns of the table.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Not the right answer.
    Wrong,
    /// Not the same answer each time.
    Varying,
    /// Not the answer of the first server.
    UnlikeFirst,
    /// No answer.
    Failed,
}

impl Verdict {
    /// Compares what the servers said to a question.
    pub fn new(question: &Question, servers: &[&str], heard: &[&Heard]) -> Verdict {
        let mut verdict = Verdict {
            kind: question.kind.clone(),
            question: question.brief(),
            expected: question.expect.words(),
            answers: Vec::new(),
            problems: Vec::new(),
        };
        for (server, heard) in servers.iter().zip(heard) {
            verdict.hear(question, server, heard);
        }
        verdict
    }

    fn hear(&mut self, question: &Question, server: &str, heard: &Heard) {
        let first = self.answers.first().map(|given| given.answer.clone());
        let mut problem = |what, message| {
            let server = server.into();
            self.problems.push(Problem {
                server,
                what,
                message,
            });
        };
        let said = || {
            heard
                .iter()
                .flat_map(|(at, said)| said.iter().map(|s| (*at, s)))
        };
        let failures: Vec<&String> = said().filter_map(|(_, s)| s.as_ref().err()).collect();
        if let Some(why) = failures.first() {
            problem(
                What::Failed,
                format!("{} times, first {why}", failures.len()),
            );
        }
        let given = distinct(question, server, said());
        let wrong: usize = (given.iter().filter(|g| !g.right))
            .flat_map(|g| g.times.values())
            .sum();
        if wrong > 0 {
            problem(What::Wrong, format!("{wrong} wrong answers"));
        }
        if given.len() > 1 {
            problem(What::Varying, format!("{} different answers", given.len()));
        }
        if let (Some(first), Some(here)) = (&first, given.first())
            && here.answer != *first
        {
            let message = "its first answer is not that of the first server";
            problem(What::UnlikeFirst, message.into());
        }
        self.answers.extend(given);
    }

    fn has(&self, server: &str, what: What) -> bool {
        (self.problems.iter()).any(|p| p.server == server && p.what == what)
    }
}

fn distinct<'a>(
    question: &Question,
    server: &str,
    said: impl Iterator<Item = (u16, &'a Said)>,
) -> Vec<Given> {
    let mut given: Vec<Given> = Vec::new();
    for (at, answer) in said.filter_map(|(at, said)| said.as_ref().ok().map(|s| (at, s))) {
        let index = match given.iter().position(|g| g.answer == *answer) {
            Some(index) => index,
            None => {
                given.push(Given {
                    server: server.into(),
                    answer: answer.clone(),
                    right: question.expect.accepts(&answer.text),
                    times: BTreeMap::new(),
                });
                given.len() - 1
            }
        };
        *given[index].times.entry(at).or_default() += 1;
    }
    given
}

/// The table, and below it what is wrong.
pub fn print(servers: &[&str], verdicts: &[Verdict]) -> Result<(), CommandError> {
    let mut kinds: Vec<&str> = verdicts.iter().map(|v| v.kind.as_str()).collect();
    kinds.dedup();
    let columns = [What::Wrong, What::Varying, What::UnlikeFirst, What::Failed];
    let rows = servers.iter().flat_map(|server| {
        kinds.iter().map(move |kind| {
            let of_kind = || verdicts.iter().filter(|v| v.kind == *kind);
            let count = |what| of_kind().filter(|v| v.has(server, what)).count();
            let numbers = columns.iter().map(|what| count(*what).to_string());
            let words = [server.to_string(), kind.to_string()];
            let asked = of_kind().count().to_string();
            words.into_iter().chain([asked]).chain(numbers).collect()
        })
    });
    let header = [
        "server",
        "canaries",
        "questions",
        "wrong",
        "varying",
        "unlike the first server",
        "failed",
    ];
    format::line(&format::table(&header, 2, rows).to_string())?;
    for verdict in verdicts.iter().filter(|v| !v.problems.is_empty()) {
        print_problems(verdict)?;
    }
    Ok(())
}

fn print_problems(verdict: &Verdict) -> Result<(), CommandError> {
    let Verdict {
        kind,
        question,
        expected,
        ..
    } = verdict;
    format::line(&format!("\n{kind}: {question}\n  expected {expected:?}"))?;
    for Problem {
        server, message, ..
    } in &verdict.problems
    {
        format::line(&format!("  {server}: {message}"))?;
    }
    for given in &verdict.answers {
        let times: Vec<String> = (given.times.iter())
            .map(|(at, times)| format!("{times} times with {at} in flight"))
            .collect();
        let (server, text) = (&given.server, &given.answer.text);
        format::line(&format!("  {server} said {text:?} ({})", times.join(", ")))?;
    }
    Ok(())
}
