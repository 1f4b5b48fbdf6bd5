//! The questions that the field asks: whatever is right, nothing but the question decides it.

use crate::canary::file::Canary;
use fastrand::Rng;
use serde::Serialize;
use serde_json::{Value, json};

/// A question and what may be said to it.
pub struct Question {
    /// What it is about.
    pub kind: String,
    /// The conversation that asks.
    pub messages: Vec<Message>,
    /// The right answer.
    pub expect: Expect,
}

/// One turn of a conversation, as the API has it.
#[derive(Serialize)]
pub struct Message {
    role: String,
    content: String,
}

/// When an answer is right. How the model dresses it up (a code fence, a full stop) is its own affair.
pub enum Expect {
    /// These characters.
    Text(String),
    /// This document.
    Json(Value),
    /// These words in this order, with commas between them.
    List(Vec<String>),
    /// This whole number.
    Number(u64),
    /// As the file of canaries says.
    File(Canary),
}

impl Expect {
    /// Whether the answer is right.
    pub fn accepts(&self, text: &str) -> bool {
        let said = text.rsplit_once("</think>").map_or(text, |(_, said)| said);
        let said = said.trim();
        match self {
            Expect::Text(expect) => said == expect,
            Expect::Json(expect) => {
                serde_json::from_str::<Value>(unfenced(said)).is_ok_and(|found| found == *expect)
            }
            Expect::List(expect) => {
                let found = said.trim_end_matches('.').split(',').map(str::trim);
                found.eq(expect.iter().map(String::as_str))
            }
            Expect::Number(expect) => said.trim_end_matches('.').parse() == Ok(*expect),
            Expect::File(canary) => canary.accepts(text),
        }
    }

    /// For the report.
    pub fn words(&self) -> String {
        match self {
            Expect::Text(text) => text.clone(),
            Expect::Json(value) => value.to_string(),
            Expect::List(words) => words.join(", "),
            Expect::Number(number) => number.to_string(),
            Expect::File(canary) => canary.answer.clone(),
        }
    }
}

/// What stands inside a code fence, where there is one.
fn unfenced(text: &str) -> &str {
    let Some(inside) = text.strip_prefix("```").and_then(|t| t.strip_suffix("```")) else {
        return text;
    };
    inside.strip_prefix("json").unwrap_or(inside).trim()
}

impl Question {
    fn new(kind: &str, content: String, expect: Expect) -> Question {
        let role = "user".into();
        Question {
            kind: kind.into(),
            messages: vec![Message { role, content }],
            expect,
        }
    }

    /// One that a file asks.
    pub fn from_file(kind: &str, canary: Canary) -> Question {
        let messages = canary.messages.iter().map(|m| Message {
            role: m.role.clone(),
            content: m.content.clone(),
        });
        Question {
            kind: kind.into(),
            messages: messages.collect(),
            expect: Expect::File(canary),
        }
    }

    /// What was asked last, cut short.
    pub fn brief(&self) -> String {
        const SHOWN: usize = 100;
        let text = self.messages.last().map_or("", |m| m.content.as_str());
        match text.char_indices().nth(SHOWN) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text.into(),
        }
    }
}

const COLOURS: [&str; 16] = [
    "amber", "azure", "beige", "black", "coral", "crimson", "green", "indigo", "ivory", "lilac",
    "magenta", "olive", "orange", "teal", "violet", "white",
];
const NAMES: [&str; 12] = [
    "Ada", "Bela", "Chidi", "Dana", "Emre", "Fumiko", "Goran", "Hana", "Ines", "Jonas", "Kaya",
    "Leila",
];
const OF_A_KIND: usize = 3;

/// Three questions of each kind; the same ones for the same seed.
pub fn of_the_field(seed: u64, lines: usize) -> Vec<Question> {
    let mut rng = Rng::with_seed(seed);
    let kinds: [&dyn Fn(&mut Rng) -> Question; 5] =
        [&json, &colours, &copy, &sum, &|rng| long(rng, lines)];
    let questions = kinds.iter().flat_map(|kind| {
        let of_kind: Vec<Question> = (0..OF_A_KIND).map(|_| kind(&mut rng)).collect();
        of_kind
    });
    questions.collect()
}

fn pick<'a>(rng: &mut Rng, from: &[&'a str]) -> &'a str {
    from[rng.usize(..from.len())]
}

fn json(rng: &mut Rng) -> Question {
    let document = json!({
        "name": pick(rng, &NAMES),
        "id": rng.u32(1000..10_000),
        "colours": [pick(rng, &COLOURS), pick(rng, &COLOURS)],
        "active": rng.bool(),
        "parent": { "id": rng.u32(10..100), "note": null },
    });
    let asked = format!("Answer with exactly this JSON document and nothing else: {document}");
    Question::new("json", asked, Expect::Json(document))
}

fn colours(rng: &mut Rng) -> Question {
    let list: Vec<String> = (0..8).map(|_| pick(rng, &COLOURS).into()).collect();
    let asked = format!(
        "Remember this list of colours: {}. Say the list again in the same order, with commas \
         between the colours and nothing else.",
        list.join(", ")
    );
    Question::new("colours", asked, Expect::List(list))
}

fn copy(rng: &mut Rng) -> Question {
    let line: Vec<String> = (0..6)
        .map(|_| format!("{}-{:04x}", pick(rng, &NAMES), rng.u16(..)))
        .collect();
    let line = line.join(" ");
    let asked = format!("Copy this line character by character, and say nothing else: {line}");
    Question::new("copy", asked, Expect::Text(line))
}

fn sum(rng: &mut Rng) -> Question {
    let (a, b) = (rng.u64(100..1000), rng.u64(100..1000));
    let asked = format!("What is {a} + {b}? Answer with the number only.");
    Question::new("arithmetic", asked, Expect::Number(a + b))
}

fn long(rng: &mut Rng, lines: usize) -> Question {
    let wanted = rng.usize(..lines);
    let mut text = String::new();
    let mut answer = 0;
    for line in 0..lines {
        let number = rng.u64(1000..10_000);
        if line == wanted {
            answer = number;
        }
        let name = pick(rng, &NAMES);
        text += &format!("Line {}: {name} counted {number} birds.\n", line + 1);
    }
    let asked = format!(
        "{text}\nHow many birds were counted in line {}? Answer with the number only.",
        wanted + 1
    );
    Question::new("long context", asked, Expect::Number(answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn right_answers_in_other_clothes() {
        let check = |expect: &Expect, text: &str, right| {
            assert_eq!(expect.accepts(text), right, "{text:?}");
        };
        let document = Expect::Json(json!({"a": [1, null]}));
        check(&document, "{\"a\": [1, null]}", true);
        check(&document, "```json\n{\"a\":[1,null]}\n```", true);
        check(&document, "<think>\nso\n</think>\n\n{\"a\":[1,null]}", true);
        check(&document, "{\"a\": [1]}", false);
        check(&document, "Here: {\"a\": [1, null]}", false);
        let list = Expect::List(vec!["red".into(), "teal".into()]);
        check(&list, "red, teal.", true);
        check(&list, "red,teal", true);
        check(&list, "teal, red", false);
        check(&list, "red, teal, teal", false);
        check(&Expect::Number(512), "512.", true);
        check(&Expect::Number(512), "513", false);
        check(&Expect::Number(512), "", false);
        check(&Expect::Text("a b".into()), "a b\n", true);
        check(&Expect::Text("a b".into()), "a  b", false);
    }

    #[test]
    fn a_seed_draws_the_same_questions() {
        let asked = |seed| -> Vec<String> {
            let questions = of_the_field(seed, 7);
            questions
                .iter()
                .map(|q| q.messages[0].content.clone())
                .collect()
        };
        assert_eq!(asked(1), asked(1));
        assert_ne!(asked(1), asked(2));
        assert_eq!(asked(0).len(), 5 * OF_A_KIND);
    }

    #[test]
    fn the_long_context_holds_its_answer() {
        for question in of_the_field(3, 40)
            .iter()
            .filter(|q| q.kind == "long context")
        {
            let content = &question.messages[0].content;
            let (_, asked) = content.rsplit_once("in line ").unwrap();
            let line = asked.split('?').next().unwrap();
            let start = format!("Line {line}: ");
            let line = content.lines().find(|l| l.starts_with(&start)).unwrap();
            let number = question.expect.words();
            assert!(line.contains(&format!(" {number} ")), "{line} {number}");
            assert_eq!(content.lines().count(), 42);
        }
    }
}
