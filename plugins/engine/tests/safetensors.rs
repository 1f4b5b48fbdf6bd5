//! Files that are not what they say: refused with the file, the tensor and the reason.

use layerlet_engine::checkpoint::{Bytes, TensorFile};
use proptest::prelude::*;
use safetensors::SafeTensors;

fn file(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend((0..data).map(|i| i as u8));
    bytes
}

fn entry(name: &str, dtype: &str, shape: &str, offsets: &str) -> String {
    format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}"#)
}

fn refusal(bytes: Vec<u8>) -> String {
    match TensorFile::new("f.safetensors", Bytes::Owned(bytes)) {
        Ok(_) => "accepted".into(),
        Err(e) => e.to_string(),
    }
}

#[test]
fn hostile_headers_are_refused_by_name() {
    let check = |header: &str, data: usize, expect: &str| {
        assert_eq!(
            refusal(file(header, data)),
            format!("f.safetensors: {expect}"),
            "{header}"
        );
    };
    let one = |dtype: &str, shape: &str, offsets: &str| {
        format!("{{{}}}", entry("a", dtype, shape, offsets))
    };
    let two = |first: &str, second: &str| {
        let (a, b) = (
            entry("a", "I8", "[4]", first),
            entry("b", "I8", "[4]", second),
        );
        format!("{{{a},{b}}}")
    };
    let max = u64::MAX;
    check(
        &two("[0,4]", "[2,6]"),
        6,
        "tensor b: offset 2 overlaps the tensor before it, which ends at 4",
    );
    check(
        &two("[0,4]", "[6,10]"),
        10,
        "tensor b: offset 6 leaves a gap before it, which ends at 4",
    );
    check(
        &two("[0,4]", "[4,8]"),
        9,
        "1 bytes after its last tensor belong to none",
    );
    check(
        &two("[0,4]", "[4,8]"),
        7,
        "tensor b: offsets 4..8 do not lie in the file's 7 bytes of data",
    );
    check(
        &two("[0,4]", &format!("[4,{max}]")),
        8,
        "tensor b: offsets 4..18446744073709551615 do not lie in the file's 8 bytes of data",
    );
    check(
        &two("[4,0]", "[4,8]"),
        8,
        "tensor a: offsets 4..0 do not lie in the file's 8 bytes of data",
    );
    // 2^32 * 2^32 wraps to 0, (2^63 + 2) * 2 bytes to 4.
    check(
        &one("I8", "[4294967296,4294967296]", "[0,0]"),
        0,
        "tensor a: the size of I8 [4294967296, 4294967296] overflows",
    );
    check(
        &one("BF16", "[9223372036854775810]", "[0,4]"),
        4,
        "tensor a: the size of BF16 [9223372036854775810] overflows",
    );
    check(
        &one("F32", "[2]", "[0,4]"),
        4,
        "tensor a: F32 [2] has 64 bits, offsets 0..4 hold 4 bytes",
    );
    check(
        &one("F4", "[3]", "[0,2]"),
        2,
        "tensor a: F4 [3] has 12 bits, offsets 0..2 hold 2 bytes",
    );
    let again = entry("a", "I8", "[4]", "[0,4]");
    check(
        &format!("{{{again},{again}}}"),
        4,
        "tensor a: the header has it twice",
    );
    check(
        r#"{"__metadata__":{},"__metadata__":{}}"#,
        0,
        "header: __metadata__ is there twice at line 1 column 33",
    );
}

#[test]
fn broken_headers_are_refused() {
    let check = |bytes: Vec<u8>, expect: &str| {
        let found = refusal(bytes);
        assert!(
            found.starts_with(&format!("f.safetensors: {expect}")),
            "{found}"
        );
    };
    let lying = |length: u64| {
        let mut bytes = file("{}", 0);
        bytes[..8].copy_from_slice(&length.to_le_bytes());
        bytes
    };
    check(vec![], "0 bytes are too few");
    check(vec![2, 0, 0, 0], "4 bytes are too few");
    check(
        lying(u64::MAX),
        "the header is said to have 18446744073709551615 bytes, at most",
    );
    check(
        lying(3),
        "the header is said to have 3 bytes, the file has 2",
    );
    check(file("", 0), "header: EOF");
    check(file("[]", 0), "header: invalid type");
    check(file("{", 0), "header: EOF");
    check(file("{} x", 0), "header: trailing characters");
    check(
        file(r#"{"__metadata__":{"a":1}}"#, 0),
        "header: __metadata__: invalid type",
    );
    check(
        file(r#"{"a":{"dtype":"I8","shape":[0]}}"#, 0),
        "header: tensor a: missing field",
    );
    check(
        file(
            r#"{"a":{"dtype":"Q9","shape":[0],"data_offsets":[0,0]}}"#,
            0,
        ),
        "header: tensor a: unknown variant `Q9`",
    );
    check(
        file(
            r#"{"a":{"dtype":"I8","dtype":"I8","shape":[0],"data_offsets":[0,0]}}"#,
            0,
        ),
        "header: tensor a: duplicate field `dtype`",
    );
    check(
        file(
            r#"{"a":{"dtype":"I8","shape":[-1],"data_offsets":[0,0]}}"#,
            0,
        ),
        "header: tensor a: invalid value: integer `-1`",
    );
    check(
        file(
            r#"{"a":{"dtype":"I8","shape":[18446744073709551616],"data_offsets":[0,0]}}"#,
            0,
        ),
        "header: tensor a: invalid type: floating point",
    );
    check(file("\u{feff}{}", 0), "header: expected value");
}

#[test]
fn well_formed_files_are_read() {
    let header = format!(
        "{{\"__metadata__\":{{\"format\":\"pt\"}},{},{},{}}}  ",
        entry("b", "I8", "[2,2]", "[4,8]"),
        entry("a", "F32", "[]", "[0,4]"),
        entry("empty", "BF16", "[0,7]", "[8,8]"),
    );
    let file = TensorFile::new("f", Bytes::Owned(file(&header, 8))).expect("is well-formed");
    let found: Vec<(&str, &[u8])> = file
        .tensors
        .iter()
        .map(|t| (t.name.as_str(), file.bytes(t)))
        .collect();
    let expect: [(&str, &[u8]); 3] = [("a", &[0, 1, 2, 3]), ("b", &[4, 5, 6, 7]), ("empty", &[])];
    assert_eq!(found, expect);
}

proptest! {
    /// What is accepted here is what the crate `safetensors` reads, tensor for tensor.
    #[test]
    fn agrees_with_the_peer(entries in prop::collection::vec((0u64..9, 0u64..9, 0u64..9, 0usize..4), 0..4), data in 0usize..12) {
        const NAMES: [&str; 4] = ["a", "b", "c", "d"];
        let parts: Vec<String> = entries
            .iter()
            .map(|(n, begin, end, name)| entry(NAMES[*name], "I8", &format!("[{n}]"), &format!("[{begin},{end}]")))
            .collect();
        let bytes = file(&format!("{{{}}}", parts.join(",")), data);
        agree(&bytes)?;
    }

    /// Files that are right but for one byte.
    #[test]
    fn agrees_with_the_peer_after_damage(at in 0usize..200, byte in any::<u8>(), cut in 0usize..8) {
        let header = format!(
            "{{{},{},{}}}",
            entry("b", "I8", "[2,2]", "[4,8]"),
            entry("a", "F32", "[1]", "[0,4]"),
            entry("c", "BF16", "[3,1]", "[8,14]"),
        );
        let mut bytes = file(&header, 14);
        let at = at % bytes.len();
        bytes[at] = byte;
        bytes.truncate(bytes.len() - cut / 7);
        agree(&bytes)?;
    }
}

fn agree(bytes: &[u8]) -> Result<(), TestCaseError> {
    let Ok(ours) = TensorFile::new("f", Bytes::Owned(bytes.to_vec())) else {
        return Ok(());
    };
    let theirs = SafeTensors::deserialize(bytes);
    let theirs = theirs.map_err(|e| TestCaseError::fail(format!("the peer refuses it: {e}")))?;
    prop_assert_eq!(ours.tensors.len(), theirs.len());
    for tensor in &ours.tensors {
        let view = theirs.tensor(&tensor.name).expect("the peer has it too");
        prop_assert_eq!(view.dtype(), tensor.dtype);
        prop_assert_eq!(view.shape(), tensor.shape.as_slice());
        prop_assert_eq!(view.data(), ours.bytes(tensor));
    }
    Ok(())
}
