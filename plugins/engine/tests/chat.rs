//! Chat templates: where they are found, what they give, what is said of broken ones.

use layerlet_engine::{ChatTemplate, Conversation, EngineError, Message};
use serde_json::json;
use std::path::Path;

/// Methods of Python's strings, a test on a value's kind, blocks on lines of their own: what templates
/// of the family use.
const TEMPLATE: &str = "\
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == 'assistant' and '</think>' in content %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- '<' + message.role + '>' + content + '\\n' }}
{%- endfor %}
{%- if messages[0].role == 'nobody' %}{{ raise_exception('nobody speaks') }}{% endif %}
{% if add_generation_prompt %}
<assistant>
{% if not enable_thinking %}
</think>
{% endif %}
{% endif %}
";

fn message(role: &str, content: &str) -> Message {
    Message {
        role: role.into(),
        content: content.into(),
    }
}

fn folder(file: &str, content: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(file), content).unwrap();
    folder
}

fn open(folder: &Path) -> ChatTemplate {
    ChatTemplate::open(folder)
        .unwrap()
        .expect("there is a template")
}

fn error(folder: &Path) -> String {
    let opened: Result<_, EngineError> = ChatTemplate::open(folder);
    match opened {
        Ok(_) => panic!("a broken template was taken"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_conversation_becomes_a_prompt() {
    let folder = folder("chat_template.jinja", TEMPLATE);
    let template = open(folder.path());
    let talk = [
        message("user", "Hello"),
        message("assistant", "<think>\nno\n</think>\n\nGood morning"),
        message("user", "1 < 2?"),
    ];
    // The same that jinja2 gives with the settings of transformers.
    let text = "<user>Hello\n<assistant>Good morning\n<user>1 < 2?\n<assistant>\n";
    let check = |thinking, expect: String| {
        assert_eq!(template.prompt(&talk, thinking).unwrap(), expect);
    };
    check(true, text.into());
    check(false, format!("{text}</think>\n"));
}

#[test]
fn the_tokenizers_configuration_may_hold_it() {
    let json = serde_json::json!({ "chat_template": "{{ messages[0].content }}" });
    let folder = folder("tokenizer_config.json", &json.to_string());
    let said = |folder: &Path| open(folder).prompt(&[message("user", "a")], false).unwrap();
    assert_eq!(said(folder.path()), "a");
    // A file of its own comes first.
    let own = folder.path().join("chat_template.jinja");
    std::fs::write(own, "b").unwrap();
    assert_eq!(said(folder.path()), "b");
}

#[test]
fn a_folder_may_have_none() {
    let empty = tempfile::tempdir().unwrap();
    assert!(ChatTemplate::open(empty.path()).unwrap().is_none());
    let silent = folder("tokenizer_config.json", "{}");
    assert!(ChatTemplate::open(silent.path()).unwrap().is_none());
}

#[test]
fn what_is_broken_is_named() {
    let check = |file: &str, content: &str, fragment: &str| {
        let folder = folder(file, content);
        let error = error(folder.path());
        assert!(error.contains(file) && error.contains(fragment), "{error}");
    };
    check("chat_template.jinja", "{% if %}", "syntax error");
    check("tokenizer_config.json", "{", "EOF");
    check(
        "tokenizer_config.json",
        "{\"chat_template\": [1]}",
        "chat_template is not a text",
    );
}

#[test]
fn a_template_may_refuse() {
    let folder = folder("chat_template.jinja", TEMPLATE);
    let refused = open(folder.path()).prompt(&[message("nobody", "")], false);
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("nobody speaks"), "{error}");
}

/// Tools and calls as a template of the family lays them out; JSON as Python writes it, keys in their order.
#[test]
fn tools_and_arguments_reach_the_template() {
    let template = "{% if tools %}{{ tools[0] | tojson }}{% endif %}\
        {% for m in messages %}{% for call in m.tool_calls %}\
        {% for k, v in call.function.arguments | items %}[{{ k }}={{ v }}]{% endfor %}{% endfor %}{% endfor %}\
        {% if add_generation_prompt %}<{{ tone }}>{% endif %}";
    let folder = folder("chat_template.jinja", template);
    let call = json!({ "function": { "name": "f", "arguments": { "z": 1, "a": "<b>" } } });
    let messages = [json!({ "role": "assistant", "tool_calls": [call] })];
    let tools = [json!({ "name": "f", "about": "it's <é>", "list": [1, "x"] })];
    let arguments = json!({ "tone": "calm", "messages": "not this" });
    let mut conversation = Conversation {
        messages: &messages,
        tools: &tools,
        generation_prompt: true,
        arguments: arguments.as_object().unwrap(),
    };
    let template = open(folder.path());
    let tool = r#"{"name": "f", "about": "it's <é>", "list": [1, "x"]}"#;
    let rendered = template.render(&conversation).unwrap();
    assert_eq!(rendered, format!("{tool}[z=1][a=<b>]<calm>"));
    conversation.tools = &[];
    conversation.generation_prompt = false;
    assert_eq!(template.render(&conversation).unwrap(), "[z=1][a=<b>]");
}
