//! One question to one server over HTTP.

use super::question::Question;
use crate::canary::Args;
use crate::error::CommandError;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::time::Duration;
use ureq::Agent;

/// All of an answer that has to be the same each time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// What the model said.
    pub text: String,
    /// What it thought, where the server tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// `stop`, `length`, ...
    pub finish: String,
}

/// A server that answers chat completions.
pub struct Server {
    /// As it was given, without `/v1`.
    pub url: String,
    /// What it is asked for.
    pub model: String,
    agent: Agent,
    key: Option<String>,
    /// Fields of every request.
    fields: Map<String, Value>,
}

/// Longest answer that is read; no canary's answer comes near it.
const LONGEST: u64 = 16 << 20;

impl Server {
    /// Finds out what the server's model is called, unless that was said.
    pub fn open(url: &str, args: &Args) -> Result<Server, CommandError> {
        let flags = &args.servers;
        let timeout = Duration::from_secs(flags.timeout.into());
        let agent = Agent::config_builder()
            .timeout_global(Some(timeout))
            .http_status_as_error(false)
            .build();
        let url = url.trim_end_matches('/');
        let mut fields = extra(flags.extra.as_deref())?;
        let mut default = |name: &str, value: Value| {
            fields.entry(name).or_insert(value);
        };
        default("temperature", json!(0));
        default("max_tokens", json!(args.max_tokens));
        if args.thinking {
            default("chat_template_kwargs", json!({ "enable_thinking": true }));
        }
        let mut server = Server {
            url: url.strip_suffix("/v1").unwrap_or(url).to_string(),
            model: String::new(),
            agent: agent.into(),
            key: flags.api_key.clone(),
            fields,
        };
        server.model = match &flags.served_model {
            Some(name) => name.clone(),
            None => server.first_model()?,
        };
        Ok(server)
    }

    fn first_model(&self) -> Result<String, CommandError> {
        let problem = |problem: String| CommandError::argument("--url", problem);
        let address = format!("{}/v1/models", self.url);
        let mut request = self.agent.get(&address);
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let listed = document(&address, request.call()).map_err(problem)?;
        let name = listed["data"][0]["id"].as_str();
        name.map(String::from).ok_or_else(|| {
            problem(format!(
                "{address} lists no model; name one with --served-model"
            ))
        })
    }

    /// Asks and waits.
    pub fn ask(&self, question: &Question) -> Result<Answer, String> {
        let mut body = self.fields.clone();
        body.insert("model".into(), json!(self.model));
        body.insert("messages".into(), json!(question.messages));
        let address = format!("{}/v1/chat/completions", self.url);
        let mut request = self.agent.post(&address);
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let reply = document(&address, request.send_json(&body))?;
        let choice = &reply["choices"][0];
        let message = &choice["message"];
        if !message.is_object() {
            return Err(format!("{address}: the answer has no choices[0].message"));
        }
        let string = |value: &Value| value.as_str().map(String::from);
        let thought = ["reasoning_content", "reasoning"];
        Ok(Answer {
            text: string(&message["content"]).unwrap_or_default(),
            reasoning: thought.iter().find_map(|name| string(&message[*name])),
            finish: string(&choice["finish_reason"]).unwrap_or_default(),
        })
    }
}

fn extra(text: Option<&str>) -> Result<Map<String, Value>, CommandError> {
    let Some(text) = text else {
        return Ok(Map::new());
    };
    serde_json::from_str(text)
        .map_err(|e| CommandError::argument("--extra", format!("expected a JSON object: {e}")))
}

/// The JSON document of a reply; anything else as a sentence that says what came instead.
fn document(
    address: &str,
    reply: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
) -> Result<Value, String> {
    let mut reply = reply.map_err(|e| format!("{address}: {e}"))?;
    let status = reply.status();
    let text = reply.body_mut().with_config().limit(LONGEST);
    let text = text
        .read_to_string()
        .map_err(|e| format!("{address}: {e}"))?;
    if !status.is_success() {
        let start: String = text.chars().take(300).collect();
        return Err(format!("{address}: status {status}: {start}"));
    }
    serde_json::from_str(&text).map_err(|e| format!("{address}: expected JSON: {e}"))
}
