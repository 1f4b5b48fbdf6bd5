//! Text to ids and back, by the checkpoint's `tokenizer.json`.

use crate::error::EngineError;
use std::path::Path;

/// The file a tokenizer is read from.
const FILE: &str = "tokenizer.json";

/// A checkpoint's tokenizer.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
}

impl Tokenizer {
    /// Reads `tokenizer.json` of a folder; none where there is no such file.
    pub fn open(dir: &Path) -> Result<Option<Tokenizer>, EngineError> {
        let path = dir.join(FILE);
        if !path.exists() {
            return Ok(None);
        }
        let failed = |e: tokenizers::Error| EngineError::File {
            path: path.display().to_string(),
            problem: e.to_string(),
        };
        let inner = tokenizers::Tokenizer::from_file(&path).map_err(failed)?;
        Ok(Some(Tokenizer { inner }))
    }

    /// Ids of a text, without tokens that the text does not contain.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, EngineError> {
        let encoding = self.inner.encode(text, false);
        let encoding = encoding
            .map_err(|e| EngineError::request("the prompt", format!("{text:?}"), e.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Text of ids, special tokens left out.
    pub fn decode(&self, ids: &[u32]) -> Result<String, EngineError> {
        let text = self.inner.decode(ids, true);
        text.map_err(|e| EngineError::request("token ids", format!("{ids:?}"), e.to_string()))
    }

    /// A stream of text for a stream of ids.
    pub fn stream(&self) -> TextStream<'_> {
        TextStream {
            tokenizer: self,
            ids: Vec::new(),
            context: 0,
            said: 0,
        }
    }
}

/// Turns ids into text as they come; a character split over tokens waits until it is whole.
pub struct TextStream<'a> {
    tokenizer: &'a Tokenizer,
    ids: Vec<u32>,
    /// Ids from here on are decoded again: a tokenizer may join neighbours.
    context: usize,
    /// Ids whose text has been said.
    said: usize,
}

impl TextStream<'_> {
    /// Text that the next id completes; empty while a character is incomplete.
    pub fn push(&mut self, id: u32) -> Result<String, EngineError> {
        self.ids.push(id);
        let (before, all) = self.texts()?;
        if all.len() <= before.len() || all.ends_with(char::REPLACEMENT_CHARACTER) {
            return Ok(String::new());
        }
        let text = all[before.len()..].to_string();
        self.context = self.said;
        self.said = self.ids.len();
        Ok(text)
    }

    /// What is left when no id follows: an incomplete character becomes U+FFFD.
    pub fn finish(self) -> Result<String, EngineError> {
        let (before, all) = self.texts()?;
        Ok(all.get(before.len()..).unwrap_or_default().to_string())
    }

    fn texts(&self) -> Result<(String, String), EngineError> {
        let before = self.tokenizer.decode(&self.ids[self.context..self.said])?;
        let all = self.tokenizer.decode(&self.ids[self.context..])?;
        Ok((before, all))
    }
}
