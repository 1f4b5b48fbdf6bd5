//! Token ids from a list, a text file, JSON, or a trace.

use crate::error::CommandError;
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;
use std::path::Path;

const FLAG: &str = "--ids";

/// Reads `FILE|LIST`: a list like `1,2,3`, or a file that holds one, a JSON array, a JSON object with
/// `input_ids`, or a safetensors with the tensor `input_ids`.
pub fn read(text: &str, vocab: usize) -> Result<Vec<u32>, CommandError> {
    let path = Path::new(text);
    let is_list = text
        .chars()
        .all(|c| c.is_ascii_digit() || ", \t\n".contains(c));
    let ids = match (is_list, path.is_file()) {
        // A file whose name is a list is ./1,2,3.
        (true, _) => list(text).map_err(|e| CommandError::argument(FLAG, e))?,
        (false, true) => from_file(path)?,
        (false, false) => {
            let problem = "is neither a file nor a list of token ids like 1,2,3";
            return Err(CommandError::argument(FLAG, format!("{text:?} {problem}")));
        }
    };
    if ids.is_empty() {
        return Err(CommandError::argument(
            FLAG,
            "no ids; at least one is needed",
        ));
    }
    match ids.iter().position(|id| *id as usize >= vocab) {
        None => Ok(ids),
        Some(at) => Err(CommandError::argument(
            FLAG,
            format!(
                "id {} (number {at}) is not below the vocabulary's {vocab}",
                ids[at]
            ),
        )),
    }
}

fn list(text: &str) -> Result<Vec<u32>, String> {
    let words = text.split(|c: char| c == ',' || c.is_whitespace());
    words
        .filter(|word| !word.is_empty())
        .map(|word| {
            word.parse()
                .map_err(|_| format!("{word:?} is not a token id"))
        })
        .collect()
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Json {
    List(Vec<u32>),
    Object { input_ids: Vec<u32> },
}

fn from_file(path: &Path) -> Result<Vec<u32>, CommandError> {
    let content = std::fs::read(path).map_err(|e| CommandError::file(path, e))?;
    let ids = match path.extension().and_then(|e| e.to_str()) {
        Some("safetensors") => from_trace(&content),
        Some("json") => serde_json::from_slice(&content)
            .map(|ids| match ids {
                Json::List(ids) | Json::Object { input_ids: ids } => ids,
            })
            .map_err(|e| format!("expected an array of ids, or an object with input_ids: {e}")),
        _ => match std::str::from_utf8(&content) {
            Ok(text) => list(text),
            Err(e) => Err(format!("expected a list of token ids: {e}")),
        },
    };
    ids.map_err(|problem| CommandError::file(path, problem))
}

fn from_trace(content: &[u8]) -> Result<Vec<u32>, String> {
    let file = SafeTensors::deserialize(content).map_err(|e| e.to_string())?;
    let tensor = file.tensor("input_ids").map_err(|e| e.to_string())?;
    if !matches!(tensor.shape(), [_] | [1, _]) {
        return Err(format!(
            "input_ids has shape {:?}, expected [N] or [1, N]",
            tensor.shape()
        ));
    }
    let id = |wide: i64| u32::try_from(wide).map_err(|_| format!("input_ids holds {wide}"));
    let word = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    match tensor.dtype() {
        Dtype::U32 => Ok(tensor.data().chunks_exact(4).map(word).collect()),
        Dtype::I32 => tensor
            .data()
            .chunks_exact(4)
            .map(|b| id((word(b) as i32).into()))
            .collect(),
        Dtype::I64 => tensor
            .data()
            .chunks_exact(8)
            .map(|b| id(i64::from_le_bytes(b.try_into().expect("eight bytes"))))
            .collect(),
        other => Err(format!("input_ids is {other:?}, expected I32 or I64")),
    }
}

#[cfg(test)]
mod tests {
    use super::{list, read};

    #[test]
    fn lists() {
        let check = |text: &str, expect: &[u32]| assert_eq!(list(text).unwrap(), expect);
        check("1,2,3", &[1, 2, 3]);
        check(" 1, 2\n3 ", &[1, 2, 3]);
        check("", &[]);
        assert!(list("4294967296").is_err());
    }

    #[test]
    fn refused() {
        let check = |text: &str, fragment: &str| {
            let error = read(text, 512).unwrap_err().to_string();
            assert!(error.contains(fragment), "{error}");
        };
        check(
            "1,512",
            "id 512 (number 1) is not below the vocabulary's 512",
        );
        check("a,b", "\"a,b\" is neither a file nor a list");
        check("", "no ids");
        check("1,99999999999", "\"99999999999\" is not a token id");
    }
}
