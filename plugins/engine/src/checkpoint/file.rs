//! One safetensors file: 8 bytes header length, a JSON header, the tensors' bytes without gaps.
//!
//! The crate `safetensors` reads the format too, but keeps the last of two equal keys and does not say
//! which tensor overflows or leaves a gap. Invariant: the ranges of the tensors lie in the file, do not
//! overlap and leave nothing out. Here every refusal names file and tensor; that whatever is
//! accepted here is accepted there with the same content is a test.

use super::error::CheckpointError;
use super::mapping::Bytes;
use safetensors::Dtype;
use serde::Deserialize;
use serde::de::{Error as _, MapAccess, Visitor};
use std::collections::HashSet;
use std::ops::Range;

/// The longest header that is read, as in the crate `safetensors`.
pub const MAX_HEADER: u64 = 100_000_000;

/// What a header says of a tensor; the range has been checked against dtype, shape and file.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct TensorInfo {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    /// Its bytes, counted from the start of the file.
    pub range: Range<usize>,
}

/// A file and the tensors in it, in order of their bytes.
pub struct TensorFile {
    /// Name in messages.
    pub name: String,
    /// What it holds.
    pub tensors: Vec<TensorInfo>,
    bytes: Bytes,
}

impl TensorFile {
    /// Reads and checks the header.
    pub fn new(name: impl Into<String>, bytes: Bytes) -> Result<TensorFile, CheckpointError> {
        let name = name.into();
        let tensors = read_header(&name, &bytes)?;
        Ok(TensorFile {
            name,
            tensors,
            bytes,
        })
    }

    /// Gives back the memory behind one of its tensors.
    pub fn release(&self, tensor: &TensorInfo) {
        self.bytes.release(tensor.range.clone());
    }

    /// Gives back the memory behind all of it.
    pub fn release_all(&self) {
        self.bytes.release(0..self.bytes.len());
    }

    /// The bytes of one of its tensors.
    pub fn bytes(&self, tensor: &TensorInfo) -> &[u8] {
        &self.bytes[tensor.range.clone()]
    }
}

fn read_header(file: &str, bytes: &[u8]) -> Result<Vec<TensorInfo>, CheckpointError> {
    let refuse = |problem: String| CheckpointError::file(file, problem);
    let (length, rest) = bytes.split_first_chunk::<8>().ok_or_else(|| {
        refuse(format!(
            "{} bytes are too few for a safetensors file",
            bytes.len()
        ))
    })?;
    let length = u64::from_le_bytes(*length);
    if length > MAX_HEADER {
        return Err(refuse(format!(
            "the header is said to have {length} bytes, at most {MAX_HEADER} are read"
        )));
    }
    let (header, data) = rest.split_at_checked(length as usize).ok_or_else(|| {
        refuse(format!(
            "the header is said to have {length} bytes, the file has {}",
            rest.len()
        ))
    })?;
    let header: Header =
        serde_json::from_slice(header).map_err(|e| refuse(format!("header: {e}")))?;
    let start = 8 + length as usize;
    check_tensors(file, header, start, data.len())
}

fn check_tensors(
    file: &str,
    header: Header,
    start: usize,
    data: usize,
) -> Result<Vec<TensorInfo>, CheckpointError> {
    let mut entries = header.0;
    let mut seen = HashSet::new();
    if let Some((name, _)) = entries.iter().find(|(name, _)| !seen.insert(name.as_str())) {
        return Err(CheckpointError::tensor(
            file,
            name,
            "the header has it twice",
        ));
    }
    entries.sort_by_key(|(_, entry)| entry.data_offsets);
    let mut tensors = Vec::with_capacity(entries.len());
    let mut expected = 0;
    for (name, entry) in entries {
        let end = check_span(&entry, expected, data)
            .map_err(|problem| CheckpointError::tensor(file, &name, problem))?;
        tensors.push(TensorInfo {
            name,
            dtype: entry.dtype,
            shape: entry.shape.iter().map(|&d| d as usize).collect(),
            range: start + expected..start + end,
        });
        expected = end;
    }
    if expected != data {
        return Err(CheckpointError::file(
            file,
            format!(
                "{} bytes after its last tensor belong to none",
                data - expected
            ),
        ));
    }
    Ok(tensors)
}

/// Checks that a tensor starts where the last one ended, ends inside the data, and has the size that
/// its dtype and shape give. Returns its end.
fn check_span(entry: &Entry, expected: usize, data: usize) -> Result<usize, String> {
    let (begin, end) = entry.data_offsets;
    if begin > end || end > data as u64 {
        return Err(format!(
            "offsets {begin}..{end} do not lie in the file's {data} bytes of data"
        ));
    }
    if begin != expected as u64 {
        let what = if begin < expected as u64 {
            "overlaps the tensor before it"
        } else {
            "leaves a gap before it"
        };
        return Err(format!("offset {begin} {what}, which ends at {expected}"));
    }
    let (dtype, shape) = (entry.dtype, &entry.shape);
    let bits = shape
        .iter()
        .try_fold(dtype.bitsize() as u64, |n, &d| n.checked_mul(d))
        .filter(|_| shape.iter().all(|&d| d <= isize::MAX as u64))
        .ok_or_else(|| format!("the size of {dtype} {shape:?} overflows"))?;
    if bits % 8 != 0 || bits / 8 != end - begin {
        return Err(format!(
            "{dtype} {shape:?} has {bits} bits, offsets {begin}..{end} hold {} bytes",
            end - begin
        ));
    }
    Ok(end as usize)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    dtype: Dtype,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// The header's entries as written: a map type would drop one of two equal keys in silence.
struct Header(Vec<(String, Entry)>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(HeaderVisitor)
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = Header;

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("a map from tensor names to dtype, shape and data_offsets")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
        let mut entries = Vec::new();
        let mut metadata = false;
        while let Some(name) = map.next_key::<String>()? {
            let context = |e: A::Error| A::Error::custom(format!("tensor {name}: {e}"));
            if name != "__metadata__" {
                let entry = map.next_value().map_err(context)?;
                entries.push((name, entry));
                continue;
            }
            if std::mem::replace(&mut metadata, true) {
                return Err(A::Error::custom("__metadata__ is there twice"));
            }
            map.next_value::<std::collections::HashMap<String, String>>()
                .map_err(|e| A::Error::custom(format!("__metadata__: {e}")))?;
        }
        Ok(Header(entries))
    }
}
