//! Tool calls in the Qwen formats, told apart from the answer around them.
//!
//! ```text
//! <tool_call>                              <tool_call>
//! <function=weather>                       {"name": "weather", "arguments": {"city": "Bath"}}
//! <parameter=city>                         </tool_call>
//! Bath
//! </parameter>
//! </function>
//! </tool_call>
//! ```

use super::partial::{held, take};
use serde_json::{Map, Value};

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";

/// A call of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// The function's name.
    pub name: String,
    /// What it is given.
    pub arguments: Map<String, Value>,
}

/// What a chunk of text turned into.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Piece {
    Text(String),
    Call(ToolCall),
}

/// Tells calls and text apart.
pub struct ToolCalls {
    /// The functions, as the request's `tools` gives them: their schemas say which parameters are strings.
    tools: Vec<Value>,
    inside: bool,
    pending: String,
}

impl ToolCalls {
    /// For these tools, in OpenAI's form.
    pub fn new(tools: Vec<Value>) -> ToolCalls {
        ToolCalls {
            tools,
            inside: false,
            pending: String::new(),
        }
    }

    /// Tells a chunk apart. A block that is no call stays text.
    pub fn push(&mut self, chunk: &str) -> Vec<Piece> {
        self.pending.push_str(chunk);
        let mut pieces = Vec::new();
        while self.settle(&mut pieces) {}
        pieces
    }

    /// What was held back, when no chunk follows: a block that was cut off stays text.
    pub fn finish(self) -> Option<String> {
        (!self.pending.is_empty()).then_some(self.pending)
    }

    /// Moves what is settled; whether a marker was passed, so that there may be more.
    fn settle(&mut self, pieces: &mut Vec<Piece>) -> bool {
        if self.inside {
            let Some(end) = self.pending.find(CLOSE).map(|at| at + CLOSE.len()) else {
                return false;
            };
            let block = take(&mut self.pending, end);
            let body = &block[OPEN.len()..block.len() - CLOSE.len()];
            pieces.push(match self.parse(body.trim()) {
                Some(call) => Piece::Call(call),
                None => Piece::Text(block),
            });
            self.inside = false;
            return true;
        }
        let open = self.pending.find(OPEN);
        // Blanks before a call belong to neither; whether a call follows shows later.
        let text = match open {
            Some(at) => &self.pending[..at],
            None => &self.pending[..self.pending.len() - held(&self.pending, OPEN)],
        };
        let settled = text.trim_end().len();
        if settled > 0 {
            let text = take(&mut self.pending, settled);
            pieces.push(Piece::Text(text));
        }
        if let Some(at) = open {
            self.pending.drain(..at - settled);
            self.inside = true;
        }
        open.is_some()
    }

    fn parse(&self, body: &str) -> Option<ToolCall> {
        match body.starts_with('{') {
            true => from_json(body),
            false => self.tagged_call(body),
        }
    }

    fn tagged_call(&self, body: &str) -> Option<ToolCall> {
        let (name, mut rest) = body.strip_prefix("<function=")?.split_once('>')?;
        let mut arguments = Map::new();
        loop {
            rest = rest.trim_start();
            if rest == "</function>" {
                return Some(ToolCall {
                    name: name.to_string(),
                    arguments,
                });
            }
            let (parameter, after) = rest.strip_prefix("<parameter=")?.split_once('>')?;
            let (value, after) = after.split_once("</parameter>")?;
            let value = value.strip_prefix('\n').unwrap_or(value);
            let value = value.strip_suffix('\n').unwrap_or(value);
            arguments.insert(parameter.to_string(), self.value(name, parameter, value));
            rest = after;
        }
    }

    /// Tags hold bare text: what the schema does not call a string is read as JSON, where it is JSON.
    fn value(&self, function: &str, parameter: &str, text: &str) -> Value {
        let named = |tool: &&Value| tool["function"]["name"] == function;
        let tool = self.tools.iter().find(named).unwrap_or(&Value::Null);
        let schema = &tool["function"]["parameters"]["properties"][parameter];
        let bare = || Value::String(text.to_string());
        match schema["type"] == "string" {
            true => bare(),
            false => serde_json::from_str(text.trim()).unwrap_or_else(|_| bare()),
        }
    }
}

fn from_json(body: &str) -> Option<ToolCall> {
    let Value::Object(mut call) = serde_json::from_str(body).ok()? else {
        return None;
    };
    let Value::String(name) = call.remove("name")? else {
        return None;
    };
    let arguments = match call.remove("arguments") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(arguments)) => arguments,
        Some(_) => return None,
    };
    Some(ToolCall { name, arguments })
}

#[cfg(test)]
mod tests {
    use super::{Piece, ToolCalls};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn tools() -> Vec<Value> {
        let properties = json!({ "city": { "type": "string" }, "days": { "type": "integer" } });
        let parameters = json!({ "type": "object", "properties": properties });
        vec![
            json!({ "type": "function", "function": { "name": "weather", "parameters": parameters } }),
        ]
    }

    /// All text, and all calls as JSON.
    fn run(chunks: &[&str]) -> (String, Vec<Value>) {
        let (mut text, mut calls) = (String::new(), Vec::new());
        let mut splitter = ToolCalls::new(tools());
        for piece in chunks.iter().flat_map(|chunk| splitter.push(chunk)) {
            match piece {
                Piece::Text(more) => text.push_str(&more),
                Piece::Call(call) => calls.push(json!([call.name, call.arguments])),
            }
        }
        text.extend(splitter.finish());
        (text, calls)
    }

    const TAGS: &str = "<tool_call>\n<function=weather>\n<parameter=city>\n42\n</parameter>\n<parameter=days>\n3\n\
                        </parameter>\n</function>\n</tool_call>";
    const JSON: &str =
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Bath\"}}\n</tool_call>";

    #[test]
    fn both_forms_are_calls() {
        let check = |text: &str, left: &str, calls: Value| {
            let by_char: Vec<&str> = text.split_inclusive(|_| true).collect();
            for chunks in [vec![text], by_char] {
                let found = run(&chunks);
                assert_eq!(
                    (found.0.as_str(), json!(found.1)),
                    (left, calls.clone()),
                    "{text}"
                );
            }
        };
        let tags = json!(["weather", { "city": "42", "days": 3 }]);
        let form = json!(["weather", { "city": "Bath" }]);
        check(TAGS, "", json!([tags]));
        check(JSON, "", json!([form]));
        check(
            &format!("Let me see.\n\n{TAGS}\n{JSON}"),
            "Let me see.",
            json!([tags, form]),
        );
        check(
            "<tool_call>{\"name\": 3}</tool_call> b",
            "<tool_call>{\"name\": 3}</tool_call> b",
            json!([]),
        );
        check(
            "<tool_call>\n{\"name\"",
            "<tool_call>\n{\"name\"",
            json!([]),
        );
        check("a <tool_ b \n", "a <tool_ b \n", json!([]));
    }

    proptest! {
        #[test]
        fn chunks_change_nothing(parts in prop::collection::vec(
            prop_oneof![Just(TAGS), Just(JSON), Just("<tool"), Just(" \n"), Just("é"), Just("</tool_call>")], 0..6)) {
            let text = parts.concat();
            let by_char: Vec<&str> = text.split_inclusive(|_| true).collect();
            let whole = run(&[&text]);
            prop_assert_eq!(&run(&by_char), &whole);
            prop_assert_eq!(&run(&parts), &whole);
        }
    }
}
