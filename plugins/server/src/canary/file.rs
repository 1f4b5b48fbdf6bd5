//! Files of canaries: questions to which a model has one right answer, by kind.

use crate::error::CommandError;
use layerlet_engine::Message;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What the file is called in a model's folder, or in the folder around it.
const NAME: &str = "canaries.json";

/// One question.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Canary {
    /// The conversation that asks.
    pub messages: Vec<Message>,
    /// All that the model may say to it, after whatever it thinks.
    pub answer: String,
}

impl Canary {
    /// Whether a model's text is the answer.
    pub fn accepts(&self, text: &str) -> bool {
        let said = text.rsplit_once("</think>").map_or(text, |(_, said)| said);
        said.trim_start_matches('\n') == self.answer
    }

    /// What was asked last.
    pub fn question(&self) -> &str {
        self.messages.last().map_or("", |m| m.content.as_str())
    }
}

/// Questions by kind.
pub type Canaries = BTreeMap<String, Vec<Canary>>;

/// The file that goes with a model. The same questions serve every format of a model, so they may lie
/// beside the folders of the formats.
pub fn beside(model: &Path) -> Result<PathBuf, CommandError> {
    let inside = model.join(NAME);
    let around = model.join("..").join(NAME);
    let places = [inside, around];
    match places.iter().find(|path| path.is_file()) {
        Some(path) => Ok(path.clone()),
        None => Err(CommandError::file(
            model,
            format!("has no {NAME}, nor has the folder around it; name one with --canaries"),
        )),
    }
}

/// Reads a file.
pub fn read(path: &Path) -> Result<Canaries, CommandError> {
    let failed = |problem: String| CommandError::file(path, problem);
    let text = std::fs::read(path).map_err(|e| failed(e.to_string()))?;
    let canaries: Canaries = serde_json::from_slice(&text).map_err(|e| {
        failed(format!(
            "expected lists of {{messages, answer}} by kind: {e}"
        ))
    })?;
    match canaries.values().all(Vec::is_empty) {
        true => Err(failed("holds no canary".into())),
        false => Ok(canaries),
    }
}

#[cfg(test)]
mod tests {
    use super::{Canary, beside, read};

    fn canary(answer: &str) -> Canary {
        Canary {
            messages: Vec::new(),
            answer: answer.into(),
        }
    }

    #[test]
    fn nothing_but_the_answer_is_accepted() {
        let check = |text, expect| assert_eq!(canary("{}").accepts(text), expect, "{text}");
        check("{}", true);
        check("<think>\nI must.\n</think>\n\n{}", true);
        check("\n{}", true);
        check("{} ", false);
        check("Sure: {}", false);
        check("{}</think>", false);
        check("", false);
    }

    #[test]
    fn the_models_own_file_comes_first() {
        let around = tempfile::tempdir().unwrap();
        let model = around.path().join("int8");
        std::fs::create_dir(&model).unwrap();
        let error = beside(&model).unwrap_err().to_string();
        assert!(error.contains("--canaries"), "{error}");
        let write = |path: &std::path::Path| std::fs::write(path, "{}").unwrap();
        write(&around.path().join("canaries.json"));
        assert_eq!(beside(&model).unwrap(), model.join("../canaries.json"));
        write(&model.join("canaries.json"));
        assert_eq!(beside(&model).unwrap(), model.join("canaries.json"));
    }

    #[test]
    fn a_file_without_canaries_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.json");
        let check = |content: &str, fragment: &str| {
            std::fs::write(&path, content).unwrap();
            let error = read(&path).err().expect("refused").to_string();
            assert!(error.contains("c.json"), "{error}");
            assert!(error.contains(fragment), "{error}");
        };
        check("{}", "holds no canary");
        check("{\"json\": []}", "holds no canary");
        check("[]", "messages, answer");
        check("{\"json\": [{\"messages\": []}]}", "missing field `answer`");
    }
}
