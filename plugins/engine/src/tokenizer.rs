//! Text to ids and back, by the checkpoint's `tokenizer.json`.
//!
//! Invariant: the texts of a [`TextStream`] joined are the text of its ids decoded at once.

use crate::error::EngineError;
use serde::de::IgnoredAny;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use tokenizers::DecoderWrapper;

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
        let failed = |problem: String| EngineError::File {
            path: path.display().to_string(),
            problem,
        };
        let text = std::fs::read(&path).map_err(|e| failed(e.to_string()))?;
        let json: Result<IgnoredAny, _> = serde_json::from_slice(&text);
        json.map_err(|e| failed(e.to_string()))?;
        let inner = guarded(|| tokenizers::Tokenizer::from_bytes(&text)).map_err(failed)?;
        Ok(Some(Tokenizer { inner }))
    }

    /// Ids of a text, without tokens that the text does not contain.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, EngineError> {
        let encoding = guarded(|| self.inner.encode(text, false));
        let encoding =
            encoding.map_err(|e| EngineError::request("the prompt", format!("{text:?}"), e))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Text of ids, special tokens left out.
    pub fn decode(&self, ids: &[u32]) -> Result<String, EngineError> {
        let text = guarded(|| self.inner.decode(ids, true));
        text.map_err(|e| EngineError::request("token ids", format!("{ids:?}"), e))
    }

    /// A stream of text for a stream of ids.
    pub fn stream(&self) -> TextStream<&Tokenizer> {
        TextStream::new(self)
    }

    /// Bytes that an id stands for in a text; none for special tokens and for ids without a token.
    pub fn bytes(&self, id: u32) -> Option<Vec<u8>> {
        if let Some(added) = self.inner.get_added_tokens_decoder().get(&id) {
            return (!added.special).then(|| added.content.clone().into_bytes());
        }
        let token = self.inner.id_to_token(id)?;
        match self.inner.get_decoder() {
            Some(DecoderWrapper::ByteLevel(_)) => token.chars().map(byte_of).collect(),
            _ => self.decode(&[id]).ok().map(String::into_bytes),
        }
    }

    /// How the vocabulary writes an id, special tokens too.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }
}

/// The byte that a character of a byte-level vocabulary stands for: printable ones for themselves, the others, in
/// order, for the characters from U+0100 on.
fn byte_of(c: char) -> Option<u8> {
    let printable = |b: &u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    match u32::from(c).checked_sub(0x100) {
        None => u8::try_from(c).ok().filter(printable),
        Some(n) => (0..=u8::MAX).filter(|b| !printable(b)).nth(n as usize),
    }
}

/// The crate's answer, or its panic as an error. Version 0.22 panics on a merge shorter than
/// `continuing_subword_prefix` and on half a surrogate pair, among others.
fn guarded<T>(ask: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    let answer = catch_unwind(AssertUnwindSafe(ask));
    let panicked = || Err("the tokenizer failed on it (a panic in the crate tokenizers)".into());
    answer.map_or_else(|_| panicked(), |answer| answer.map_err(|e| e.to_string()))
}

/// Turns ids into text as they come; a character split over tokens waits until it is whole.
pub struct TextStream<T> {
    tokenizer: T,
    ids: Vec<u32>,
    /// Ids from here on are decoded again: a tokenizer may join neighbours.
    context: usize,
    /// Ids up to here end with a whole character, all of it said.
    whole: usize,
    /// Bytes of the text from `context` on that have been said.
    said: usize,
}

impl<T: Deref<Target = Tokenizer>> TextStream<T> {
    /// A stream that holds its tokenizer in any way.
    pub fn new(tokenizer: T) -> TextStream<T> {
        TextStream {
            tokenizer,
            ids: Vec::new(),
            context: 0,
            whole: 0,
            said: 0,
        }
    }

    /// Text that the next id completes; empty while a character is incomplete.
    pub fn push(&mut self, id: u32) -> Result<String, EngineError> {
        self.ids.push(id);
        let all = self.tokenizer.decode(&self.ids[self.context..])?;
        let settled = settled(&all);
        let text = settled.get(self.said..).unwrap_or_default().to_string();
        self.said += text.len();
        if settled.len() == all.len() && !text.is_empty() {
            self.context = self.whole;
            self.whole = self.ids.len();
            let again = self.tokenizer.decode(&self.ids[self.context..])?;
            self.said = again.len();
        }
        Ok(text)
    }

    /// What is left when no id follows: an incomplete character becomes U+FFFD.
    pub fn finish(self) -> Result<String, EngineError> {
        let all = self.tokenizer.decode(&self.ids[self.context..])?;
        Ok(all.get(self.said..).unwrap_or_default().to_string())
    }
}

/// A text without what the next ids may still change: the bytes of an incomplete character, three at
/// most, which are decoded to one U+FFFD or to one each.
fn settled(text: &str) -> &str {
    (0..3).fold(text, |text, _| {
        text.strip_suffix(char::REPLACEMENT_CHARACTER)
            .unwrap_or(text)
    })
}
