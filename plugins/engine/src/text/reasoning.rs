//! What a model thinks (`<think>` … `</think>`) and what it says, told apart.

use super::partial::{held, take};

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// Where the text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Nothing but blanks yet: a think block may open.
    Start,
    Thinking,
    /// Line ends between the closed block and the answer belong to neither.
    Closed,
    Answer,
}

/// Tells reasoning and answer apart.
pub struct Reasoning {
    place: Place,
    closed: bool,
    thought: bool,
    pending: String,
}

/// What a chunk of text turned into.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Said {
    pub reasoning: String,
    pub answer: String,
}

impl Reasoning {
    /// For the text after a prompt: chat templates may open the block themselves.
    pub fn after(prompt: &str) -> Reasoning {
        let open = prompt.rfind(OPEN);
        let inside = open.is_some_and(|at| !prompt[at..].contains(CLOSE));
        Reasoning {
            place: if inside {
                Place::Thinking
            } else {
                Place::Start
            },
            closed: false,
            thought: inside,
            pending: String::new(),
        }
    }

    /// For a text that holds no reasoning.
    pub fn none() -> Reasoning {
        Reasoning {
            place: Place::Answer,
            closed: false,
            thought: false,
            pending: String::new(),
        }
    }

    /// Whether the text stands in a think block: what was said so far is no answer.
    pub fn unfinished(&self) -> bool {
        self.thought && !self.closed
    }

    /// Tells a chunk apart.
    pub fn push(&mut self, chunk: &str) -> Said {
        self.pending.push_str(chunk);
        let mut said = Said::default();
        loop {
            let before = self.place;
            self.settle(&mut said);
            if before == self.place {
                return said;
            }
        }
    }

    /// What was held back, when no chunk follows.
    pub fn finish(&mut self) -> Said {
        let rest = std::mem::take(&mut self.pending);
        match self.place {
            Place::Thinking => Said {
                reasoning: rest,
                answer: String::new(),
            },
            Place::Closed => Said::default(),
            Place::Start | Place::Answer => Said {
                reasoning: String::new(),
                answer: rest,
            },
        }
    }

    /// Moves what is settled at this place; may move on to the next place.
    fn settle(&mut self, said: &mut Said) {
        match self.place {
            Place::Start => {
                let text = self.pending.trim_start();
                if let Some(rest) = text.strip_prefix(OPEN) {
                    self.pending = rest.to_string();
                    self.thought = true;
                    self.place = Place::Thinking;
                } else if !OPEN.starts_with(text) {
                    self.place = Place::Answer;
                }
            }
            Place::Thinking => match self.pending.find(CLOSE) {
                Some(at) => {
                    said.reasoning.push_str(&take(&mut self.pending, at));
                    self.pending.drain(..CLOSE.len());
                    self.closed = true;
                    self.place = Place::Closed;
                }
                None => {
                    let settled = self.pending.len() - held(&self.pending, CLOSE);
                    said.reasoning.push_str(&take(&mut self.pending, settled));
                }
            },
            Place::Closed => {
                let blank = self.pending.len() - self.pending.trim_start_matches('\n').len();
                self.pending.drain(..blank);
                if !self.pending.is_empty() {
                    self.place = Place::Answer;
                }
            }
            Place::Answer => said.answer.push_str(&std::mem::take(&mut self.pending)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Reasoning, Said};
    use proptest::prelude::*;

    fn run(mut reasoning: Reasoning, chunks: &[&str]) -> (Said, bool) {
        let mut all = Said::default();
        let mut add = |said: Said| {
            all.reasoning.push_str(&said.reasoning);
            all.answer.push_str(&said.answer);
        };
        chunks.iter().for_each(|chunk| add(reasoning.push(chunk)));
        add(reasoning.finish());
        (all, reasoning.unfinished())
    }

    #[test]
    fn case_32_reasoning_and_answer() {
        let check = |prompt, text: &str, reasoning: &str, answer: &str, unfinished| {
            let expect = Said {
                reasoning: reasoning.into(),
                answer: answer.into(),
            };
            let by_char: Vec<&str> = text.split_inclusive(|_| true).collect();
            for chunks in [vec![text], by_char] {
                let found = run(Reasoning::after(prompt), &chunks);
                assert_eq!(found, (expect.clone(), unfinished), "{text:?}");
            }
        };
        // The template opens the block.
        check(
            "<think>\n",
            "I must.\n</think>\n\nYes.",
            "I must.\n",
            "Yes.",
            false,
        );
        check("<think>\n", "cut off </thi", "cut off </thi", "", true);
        check("<think>\n", "</think>\n\n", "", "", false);
        check(
            "<think>\n",
            "a </thing> b</think>c",
            "a </thing> b",
            "c",
            false,
        );
        // The template closes it: the model only answers.
        check("<think>\n\n</think>\n\n", "Yes.", "", "Yes.", false);
        check(
            "<think>\n\n</think>\n\n",
            "a </think> b",
            "",
            "a </think> b",
            false,
        );
        // The model opens it.
        check("", "<think>why</think>\n\nso", "why", "so", false);
        check("", "\n<think>why", "why", "", true);
        check("", "<thin ice", "", "<thin ice", false);
        check("", "<thi", "", "<thi", false);
        check("", "no <think> here", "", "no <think> here", false);
    }

    #[test]
    fn without_reasoning_all_is_the_answer() {
        let (said, unfinished) = run(Reasoning::none(), &["<think>a", "</think>"]);
        assert_eq!(
            (said.answer.as_str(), unfinished),
            ("<think>a</think>", false)
        );
    }

    proptest! {
        #[test]
        fn case_32_chunks_change_nothing(parts in prop::collection::vec(
            prop_oneof!["<think>", "</think>", "</thi", "\n", "é", "<"], 0..8), opened: bool) {
            let text = parts.concat();
            let prompt = if opened { "<think>\n" } else { "" };
            let by_char: Vec<&str> = text.split_inclusive(|_| true).collect();
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            let whole = run(Reasoning::after(prompt), &[&text]);
            prop_assert_eq!(&run(Reasoning::after(prompt), &by_char), &whole);
            prop_assert_eq!(&run(Reasoning::after(prompt), &parts), &whole);
        }
    }
}
