//! A tokenizer of 261 ids: every byte, three merges, two added tokens.

use serde_json::{Map, Value, json};
use std::path::Path;

/// The id after the text, special: it has no text.
pub const END: u32 = 259;
/// An added token that is text.
pub const THINK: u32 = 260;
/// Two bytes of a character of four.
pub const HALF_EMOJI: u32 = 258;

/// GPT-2's alphabet: a visible character for every byte.
fn letter(byte: u8) -> char {
    let visible = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    match visible(byte) {
        true => byte as char,
        false => {
            let before = (0..byte).filter(|&b| !visible(b)).count();
            char::from_u32(256 + before as u32).expect("a letter of Latin Extended")
        }
    }
}

pub fn json() -> Value {
    let mut vocab: Map<String, Value> = (0..=255u8)
        .map(|b| (letter(b).to_string(), b.into()))
        .collect();
    let merges = [(b'h', b'e'), (b' ', b'w'), (0xf0, 0x9f)];
    let mut pairs = Vec::new();
    for (i, (left, right)) in merges.into_iter().enumerate() {
        let (left, right) = (letter(left), letter(right));
        vocab.insert(format!("{left}{right}"), (256 + i).into());
        pairs.push(json!([left.to_string(), right.to_string()]));
    }
    let added = |id: u32, content: &str, special: bool| {
        json!({ "id": id, "content": content, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": special })
    };
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [added(END, "<|im_end|>", true), added(THINK, "</think>", false)],
        "normalizer": { "type": "NFC" },
        "pre_tokenizer": { "type": "Sequence", "pretokenizers": [
            { "type": "Split", "pattern": { "Regex": r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|\s+(?!\S)|\s+|." },
              "behavior": "Isolated", "invert": false },
            { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false },
        ]},
        "post_processor": null,
        "decoder": { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false },
        "model": { "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocab, "merges": pairs },
    })
}

pub fn write(folder: &Path) {
    let path = folder.join("tokenizer.json");
    std::fs::write(path, json().to_string()).expect("a temporary file");
}
