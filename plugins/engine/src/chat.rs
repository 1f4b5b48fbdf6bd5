//! A conversation as the text that a model was trained on, by the checkpoint's own chat template.
//!
//! Templates are Jinja as transformers runs it: Python's methods on strings, blocks that take the line
//! end after them along, `raise_exception`.

use crate::error::EngineError;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, ErrorKind, context};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde::{Deserialize, Serialize};
use serde_json::ser::Formatter;
use serde_json::{Map, Value};
use std::io;
use std::path::Path;

/// The template alone; where it is missing, it may be a field of the tokenizer's configuration.
const FILE: &str = "chat_template.jinja";
const CONFIG: &str = "tokenizer_config.json";
const FIELD: &str = "chat_template";

/// One turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// What was said.
    pub content: String,
}

/// A conversation in all its forms: parts, tools, calls and their results, as clients send it.
#[derive(Clone, Copy, Debug)]
pub struct Conversation<'a> {
    /// The turns, in OpenAI's form.
    pub messages: &'a [Value],
    /// The functions that the model may call, in OpenAI's form.
    pub tools: &'a [Value],
    /// Open the model's turn.
    pub generation_prompt: bool,
    /// What else the template knows, such as `enable_thinking`.
    pub arguments: &'a Map<String, Value>,
}

/// A checkpoint's chat template.
pub struct ChatTemplate {
    environment: Environment<'static>,
}

impl ChatTemplate {
    /// Reads a folder's template; none where it has none.
    pub fn open(dir: &Path) -> Result<Option<ChatTemplate>, EngineError> {
        let alone = dir.join(FILE);
        if alone.exists() {
            let source = std::fs::read_to_string(&alone).map_err(|e| failed(&alone, e))?;
            return compiled(&alone, source).map(Some);
        }
        let config = dir.join(CONFIG);
        if !config.exists() {
            return Ok(None);
        }
        let json = std::fs::read(&config).map_err(|e| failed(&config, e))?;
        let json: Value = serde_json::from_slice(&json).map_err(|e| failed(&config, e))?;
        match json.get(FIELD) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(source)) => compiled(&config, source.clone()).map(Some),
            Some(_) => Err(failed(&config, format!("{FIELD} is not a text"))),
        }
    }

    /// The prompt after which the model answers. `thinking` is what templates know as `enable_thinking`.
    pub fn prompt(&self, messages: &[Message], thinking: bool) -> Result<String, EngineError> {
        let given = context! {
            messages => Serde(messages),
            add_generation_prompt => true,
            enable_thinking => thinking,
        };
        self.rendered(given)
    }

    /// The prompt of a conversation in all its forms.
    pub fn render(&self, conversation: &Conversation<'_>) -> Result<String, EngineError> {
        let mut given = conversation.arguments.clone();
        let mut set = |name: &str, value| given.insert(name.into(), value);
        set("messages", conversation.messages.into());
        set(
            "add_generation_prompt",
            conversation.generation_prompt.into(),
        );
        if !conversation.tools.is_empty() {
            set("tools", conversation.tools.into());
        }
        self.rendered(minijinja::Value::from(Serde(given)))
    }

    fn rendered(&self, given: minijinja::Value) -> Result<String, EngineError> {
        let template = self.environment.get_template(FIELD);
        let prompt = template.and_then(|template| template.render(given));
        prompt.map_err(|e| EngineError::request("the conversation", "refused", with_causes(&e)))
    }
}

fn compiled(path: &Path, source: String) -> Result<ChatTemplate, EngineError> {
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build();
    let mut environment = Environment::new();
    environment.set_syntax(syntax.map_err(|e| failed(path, with_causes(&e)))?);
    environment.set_unknown_method_callback(unknown_method_callback);
    environment.add_function("raise_exception", raise_exception);
    environment.add_filter("tojson", python_json);
    let added = environment.add_template_owned(FIELD, source);
    added.map_err(|e| failed(path, with_causes(&e)))?;
    Ok(ChatTemplate { environment })
}

/// How a template says that it has no form for a conversation.
fn raise_exception(message: String) -> Result<String, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
}

/// JSON as Python writes it, which is how models saw it: blanks after `,` and `:`, nothing escaped for HTML.
fn python_json(value: minijinja::Value) -> Result<String, minijinja::Error> {
    let mut out = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, Python);
    let refused =
        |e: &dyn ToString| minijinja::Error::new(ErrorKind::BadSerialization, e.to_string());
    value.serialize(&mut serializer).map_err(|e| refused(&e))?;
    String::from_utf8(out).map_err(|e| refused(&e))
}

struct Python;

impl Formatter for Python {
    fn begin_array_value<W: io::Write + ?Sized>(
        &mut self,
        to: &mut W,
        first: bool,
    ) -> io::Result<()> {
        to.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: io::Write + ?Sized>(
        &mut self,
        to: &mut W,
        first: bool,
    ) -> io::Result<()> {
        to.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: io::Write + ?Sized>(&mut self, to: &mut W) -> io::Result<()> {
        to.write_all(b": ")
    }
}

fn failed(path: &Path, problem: impl ToString) -> EngineError {
    EngineError::File {
        path: path.display().to_string(),
        problem: problem.to_string(),
    }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |e| e.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}
