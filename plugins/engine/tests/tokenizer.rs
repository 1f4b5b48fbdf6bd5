//! Text to ids and back, whole and as a stream.

mod common;

use common::words::{self, END, HALF_EMOJI, THINK};
use layerlet_engine::{TextStream, Tokenizer};
use proptest::prelude::*;
use std::sync::OnceLock;

fn tokenizer() -> &'static Tokenizer {
    static OPENED: OnceLock<Tokenizer> = OnceLock::new();
    OPENED.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        words::write(folder.path());
        let opened = Tokenizer::open(folder.path()).expect("well-formed");
        opened.expect("there is one")
    })
}

/// What each id added, and what was left at the end.
fn streamed(tokenizer: &Tokenizer, ids: &[u32]) -> (Vec<String>, String) {
    let mut stream: TextStream<_> = tokenizer.stream();
    let texts = ids.iter().map(|&id| stream.push(id).expect("decodes"));
    let texts = texts.collect();
    (texts, stream.finish().expect("decodes"))
}

#[test]
fn text_comes_back() {
    let tokenizer = tokenizer();
    let check = |text: &str, expect: &[u32]| {
        let ids = tokenizer.encode(text).expect("encodes");
        assert_eq!(ids, expect, "{text}");
        assert_eq!(tokenizer.decode(&ids).expect("decodes"), text);
    };
    check("", &[]);
    check("he w", &[256, 257]);
    check("😀", &[HALF_EMOJI, 0x98, 0x80]);
    check("é", &[0xc3, 0xa9]);
    check("a</think>", &[97, THINK]);
    let end = tokenizer.encode("<|im_end|>").expect("encodes");
    assert_eq!(end, [END]);
    assert_eq!(tokenizer.decode(&end).expect("decodes"), "");
}

#[test]
fn a_character_split_over_tokens_comes_whole() {
    let tokenizer = tokenizer();
    let check = |ids: &[u32], expect: &[&str], rest: &str| {
        let (texts, left) = streamed(tokenizer, ids);
        assert_eq!(texts, expect);
        assert_eq!(left, rest);
    };
    // An emoji behind a letter; Hangul, three bytes; the end token within a character.
    check(
        &[97, HALF_EMOJI, 0x98, 0x80, 98],
        &["a", "", "", "😀", "b"],
        "",
    );
    check(
        &[0xed, 0x95, 0x9c, 0xea, 0xb8, 0x80],
        &["", "", "한", "", "", "글"],
        "",
    );
    check(&[0xc3, END, 0xa9], &["", "", "é"], "");
    check(&[97, THINK, END, 98], &["a", "</think>", "", "b"], "");
    // Cut within a character, by max_tokens say.
    check(&[97, 0xf0, 0x9f], &["a", "", ""], "\u{fffd}");
    // Bytes that never become a character do not hold back what follows.
    check(&[0x80, 97], &["", "\u{fffd}a"], "");
    check(
        &[0x80; 5],
        &["", "", "", "\u{fffd}", "\u{fffd}"],
        "\u{fffd}\u{fffd}\u{fffd}",
    );
}

#[test]
fn broken_files_are_refused_by_name() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    assert!(
        Tokenizer::open(folder.path())
            .expect("no file is no error")
            .is_none()
    );
    let path = folder.path().join("tokenizer.json");
    let check = |content: &[u8]| {
        std::fs::write(&path, content).expect("writes");
        let error = Tokenizer::open(folder.path())
            .err()
            .expect("refused")
            .to_string();
        assert!(
            error.starts_with(&format!("{}: ", path.display())),
            "{error}"
        );
    };
    check(b"");
    check(b"{}");
    check(b"\xff\xfe");
    let mut json = words::json();
    json["model"]["merges"] = serde_json::json!([["h", "nobody"]]);
    check(json.to_string().as_bytes());
    // On these two the crate tokenizers panics.
    let mut json = words::json();
    json["model"]["continuing_subword_prefix"] = "ab".into();
    check(json.to_string().as_bytes());
    let text = words::json().to_string();
    check(text.replace("\"ByteLevel\"", r#""\ud800""#).as_bytes());
    let mut json = words::json();
    json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(".into();
    check(json.to_string().as_bytes());
}

proptest! {
    /// Whatever the ids: valid text, broken bytes, special tokens.
    #[test]
    fn streamed_text_joined_is_the_whole_text(ids in prop::collection::vec(0u32..261, 0..40)) {
        let tokenizer = tokenizer();
        let (texts, left) = streamed(tokenizer, &ids);
        prop_assert_eq!(texts.concat() + &left, tokenizer.decode(&ids).expect("decodes"));
    }

    /// Of valid text no piece ends within a character.
    #[test]
    fn valid_text_is_never_shown_broken(text in "[a-eé한글😀👩‍🚀 ]{0,20}") {
        let tokenizer = tokenizer();
        let ids = tokenizer.encode(&text).expect("encodes");
        let (texts, left) = streamed(tokenizer, &ids);
        prop_assert_eq!(texts.concat(), tokenizer.decode(&ids).expect("decodes"));
        prop_assert!(left.is_empty());
        prop_assert!(!texts.concat().contains(char::REPLACEMENT_CHARACTER));
    }
}

#[test]
fn ids_are_bytes() {
    let tokenizer = tokenizer();
    let check =
        |id, expect: Option<&[u8]>| assert_eq!(tokenizer.bytes(id).as_deref(), expect, "{id}");
    for byte in 0..=255u8 {
        check(byte.into(), Some(&[byte]));
    }
    check(256, Some(b"he"));
    check(257, Some(b" w"));
    check(HALF_EMOJI, Some(&[0xf0, 0x9f]));
    check(THINK, Some(b"</think>"));
    check(END, None);
    check(99_999, None);
    assert_eq!(tokenizer.token(END).as_deref(), Some("<|im_end|>"));
}
