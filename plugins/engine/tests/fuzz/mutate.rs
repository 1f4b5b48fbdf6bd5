//! Damage to files: to their bytes, and to the JSON in them as JSON.

use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Files of a folder.
pub type Files = BTreeMap<String, Vec<u8>>;

/// splitmix64.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
}

/// Damages one of the files; says how.
pub fn mutate(files: &mut Files, seed: u64) -> String {
    let mut rng = Rng(seed);
    let names: Vec<String> = files.keys().cloned().collect();
    let name = rng.pick(&names);
    let mut content = files[&name].clone();
    let tensors = name.ends_with(".safetensors");
    let said = match rng.below(16) {
        0 => {
            let other = rng.pick(&names);
            content = files[&other].clone();
            format!("the content of {other}")
        }
        1 if tensors && content.len() >= 8 => header_length(&mut content, &mut rng),
        1..=5 => bytes(&mut content, tensors, &mut rng),
        _ if tensors => header(&mut content, &mut rng),
        _ => document(&mut content, &mut rng),
    };
    let said = format!("{name}: {said}");
    files.insert(name, content);
    said
}

const LENGTHS: [u64; 9] = [
    0,
    1,
    7,
    1 << 16,
    1 << 32,
    99_999_999,
    100_000_001,
    1 << 63,
    u64::MAX,
];

fn header_length(content: &mut [u8], rng: &mut Rng) -> String {
    let mut length = [0; 8];
    length.copy_from_slice(&content[..8]);
    let length = match rng.below(2) {
        0 => rng.pick(&LENGTHS),
        _ => u64::from_le_bytes(length)
            .wrapping_add(rng.below(9) as u64)
            .wrapping_sub(4),
    };
    content[..8].copy_from_slice(&length.to_le_bytes());
    format!("header length {length}")
}

fn bytes(content: &mut Vec<u8>, tensors: bool, rng: &mut Rng) -> String {
    // Of a tensor file mostly the header: damage to weights is not a loader's to notice.
    let reach = match tensors && rng.below(4) > 0 {
        true => content.len() / 4,
        false => content.len(),
    };
    let at = rng.below(reach);
    let end = (at + 1 + rng.below(16)).min(content.len());
    if content.is_empty() {
        content.push(rng.next() as u8);
        return "a byte in the empty file".into();
    }
    match rng.below(6) {
        0 => {
            let bit = rng.below(8);
            content[at] ^= 1 << bit;
            format!("bit {bit} of byte {at} flipped")
        }
        1 => {
            content[at] = rng.pick(b"\0\xff\"{}[],:09-.eE\\u \n");
            format!("byte {at} set to {:#04x}", content[at])
        }
        2 => {
            content.insert(at, rng.pick(b"\0\xff\"{}[],:09-.eE\\u \n"));
            format!("byte {:#04x} inserted at {at}", content[at])
        }
        3 => {
            content.drain(at..end);
            format!("bytes {at}..{end} removed")
        }
        4 => {
            content.truncate(at);
            format!("truncated to {at} bytes")
        }
        _ => {
            let again = content[at..end].to_vec();
            content.splice(at..at, again);
            format!("bytes {at}..{end} doubled")
        }
    }
}

/// A tensor file's header as JSON, with the length that belongs to it.
fn header(content: &mut Vec<u8>, rng: &mut Rng) -> String {
    let Some((length, rest)) = content.split_first_chunk::<8>() else {
        return bytes(content, true, rng);
    };
    let length = u64::from_le_bytes(*length) as usize;
    let Some((header, data)) = rest.split_at_checked(length) else {
        return bytes(content, true, rng);
    };
    let (mut header, data) = (header.to_vec(), data.to_vec());
    let said = document(&mut header, rng);
    *content = (header.len() as u64).to_le_bytes().to_vec();
    content.extend(header);
    content.extend(data);
    format!("header: {said}")
}

fn document(content: &mut Vec<u8>, rng: &mut Rng) -> String {
    let Ok(mut value) = serde_json::from_slice::<Value>(content) else {
        return bytes(content, false, rng);
    };
    if rng.below(8) == 0 {
        return double_key(content, &value, rng);
    }
    let (object, at) = choose(&mut value, rng);
    let said = change(object, rng);
    *content = value.to_string().into_bytes();
    format!("{at}: {said}")
}

/// Writes an entry of the outermost object again in front, which no JSON value can express.
fn double_key(content: &mut Vec<u8>, value: &Value, rng: &mut Rng) -> String {
    let Some(object) = value.as_object().filter(|o| !o.is_empty()) else {
        return bytes(content, false, rng);
    };
    let (key, first) = object
        .iter()
        .nth(rng.below(object.len()))
        .expect("below its length");
    let (_, other) = object
        .iter()
        .nth(rng.below(object.len()))
        .expect("below its length");
    let again = rng.pick(&[first, other]);
    let text = format!("{{{}:{again},{}", json!(key), &value.to_string()[1..]);
    *content = text.into_bytes();
    format!("{key} doubled")
}

/// Walks down to a container, deeper more often than not.
fn choose<'a>(value: &'a mut Value, rng: &mut Rng) -> (&'a mut Value, String) {
    let (mut at, mut path) = (value, String::from("$"));
    loop {
        let children: Vec<String> = match &*at {
            Value::Object(o) => o
                .iter()
                .filter(|(_, v)| is_container(v))
                .map(|(k, _)| k.clone())
                .collect(),
            Value::Array(a) => (0..a.len())
                .filter(|&i| is_container(&a[i]))
                .map(|i| i.to_string())
                .collect(),
            _ => Vec::new(),
        };
        if children.is_empty() || rng.below(4) == 0 {
            return (at, path);
        }
        let child = rng.pick(&children);
        path = format!("{path}.{child}");
        at = match at {
            Value::Object(o) => &mut o[&child],
            other => &mut other[child.parse::<usize>().expect("an index")],
        };
    }
}

fn is_container(value: &Value) -> bool {
    match value {
        Value::Object(o) => !o.is_empty(),
        Value::Array(a) => !a.is_empty(),
        _ => false,
    }
}

fn change(container: &mut Value, rng: &mut Rng) -> String {
    match container {
        Value::Object(object) if !object.is_empty() => {
            let keys: Vec<String> = object.keys().cloned().collect();
            let (key, other) = (rng.pick(&keys), rng.pick(&keys));
            match rng.below(8) {
                0 => {
                    object.remove(&key);
                    format!("{key} removed")
                }
                1 => {
                    let value = object.remove(&key).expect("a key of it");
                    let new = rename(&key, &other, rng);
                    object.insert(new.clone(), value);
                    format!("{key} renamed to {new}")
                }
                2 => {
                    let (a, b) = (object[&key].clone(), object[&other].clone());
                    object.insert(key.clone(), b);
                    object.insert(other.clone(), a);
                    format!("{key} and {other} swapped")
                }
                3 => {
                    let new = rename(&key, &other, rng);
                    object.insert(new.clone(), object[&key].clone());
                    format!("{key} copied to {new}")
                }
                _ => {
                    let new = replacement(&object[&key], rng);
                    let said = format!("{key}: {} to {}", short(&object[&key]), short(&new));
                    object[&key] = new;
                    said
                }
            }
        }
        Value::Array(array) if !array.is_empty() => {
            let at = rng.below(array.len());
            match rng.below(5) {
                0 => {
                    array.remove(at);
                    format!("[{at}] removed")
                }
                1 => {
                    array.insert(at, array[at].clone());
                    format!("[{at}] doubled")
                }
                2 => {
                    let other = rng.below(array.len());
                    array.swap(at, other);
                    format!("[{at}] and [{other}] swapped")
                }
                _ => {
                    let new = replacement(&array[at], rng);
                    let said = format!("[{at}]: {} to {}", short(&array[at]), short(&new));
                    array[at] = new;
                    said
                }
            }
        }
        other => {
            *other = replacement(other, rng);
            format!("replaced by {}", short(other))
        }
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    text.chars().take(60).collect()
}

fn rename(key: &str, other: &str, rng: &mut Rng) -> String {
    match rng.below(6) {
        0 => other.into(),
        1 => format!("{key}_scale"),
        2 => format!("model.visual.{key}"),
        3 => key.replace("model.", "model.language_model."),
        4 => key.replace("model.language_model.", "model."),
        _ => format!("{key}x"),
    }
}

/// Another value: near the old one, of interest to readers, or of another type.
fn replacement(old: &Value, rng: &mut Rng) -> Value {
    if let (Some(n), true) = (old.as_u64(), rng.below(2) == 0) {
        let near = [
            n.wrapping_add(1),
            n.wrapping_sub(1),
            n.wrapping_mul(2),
            n / 2,
            n ^ (1 << rng.below(40)),
        ];
        return rng.pick(&near).into();
    }
    const WORDS: [&str; 20] = [
        "",
        "BF16",
        "F16",
        "F32",
        "I8",
        "U8",
        "F4",
        "F64",
        "BOOL",
        "silu",
        "yarn",
        "full_attention",
        "linear_attention",
        "re:(",
        "re:(a{999}){999}",
        "re:.*",
        "../x",
        "model.safetensors",
        "config.json",
        "\u{0}",
    ];
    match rng.below(4) {
        0 if old.is_string() => rng.pick(&WORDS).into(),
        0 | 1 => rng
            .pick(&[
                0u64,
                1,
                2,
                3,
                7,
                127,
                4096,
                4097,
                1 << 24,
                (1 << 24) + 1,
                1 << 31,
                1 << 32,
                1 << 53,
                1 << 63,
                u64::MAX,
            ])
            .into(),
        2 => rng.pick(&[
            json!(null),
            json!(true),
            json!(false),
            json!([]),
            json!({}),
            json!([0]),
            json!({"a": 1}),
            json!(-1),
            json!(0.25),
            json!(-0.5),
            json!(1e300),
            json!(i64::MIN),
        ]),
        _ => rng.pick(&WORDS).into(),
    }
}
