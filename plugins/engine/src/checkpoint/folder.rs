//! Which files of a folder are the checkpoint: `model.safetensors`, or the shards that
//! `model.safetensors.index.json` lists.
//!
//! Invariants: a tensor name is in one file only; the index lists every tensor of its shards, in the
//! shard that holds it, and nothing else.

use super::error::CheckpointError;
use super::file::{TensorFile, TensorInfo};
use super::mapping::Bytes;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

/// Name of a checkpoint in one file.
pub const SINGLE: &str = "model.safetensors";
/// Name of the list of shards.
pub const INDEX: &str = "model.safetensors.index.json";

/// The files of a checkpoint, each tensor name in one of them.
pub struct TensorFiles {
    files: Vec<TensorFile>,
    by_name: BTreeMap<String, TensorRef>,
}

/// Which file, which tensor in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorRef {
    file: usize,
    tensor: usize,
}

impl TensorFiles {
    /// Finds and maps the files of a folder.
    pub fn open(dir: &Path) -> Result<TensorFiles, CheckpointError> {
        let (single, index) = (dir.join(SINGLE), dir.join(INDEX));
        match (single.exists(), index.exists()) {
            (true, true) => Err(CheckpointError::file(
                &dir.display().to_string(),
                format!("{SINGLE} and {INDEX} are both there; which one is the model?"),
            )),
            (false, false) => Err(CheckpointError::file(
                &dir.display().to_string(),
                format!("neither {SINGLE} nor {INDEX} is there"),
            )),
            (true, false) => TensorFiles::new(vec![map_file(dir, SINGLE)?]),
            (false, true) => open_shards(dir, &index),
        }
    }

    /// Joins files; a tensor that two of them hold is refused.
    pub fn new(files: Vec<TensorFile>) -> Result<TensorFiles, CheckpointError> {
        let mut by_name: BTreeMap<String, TensorRef> = BTreeMap::new();
        for (f, file) in files.iter().enumerate() {
            for (t, info) in file.tensors.iter().enumerate() {
                let here = TensorRef { file: f, tensor: t };
                if let Some(other) = by_name.insert(info.name.clone(), here) {
                    return Err(CheckpointError::tensor(
                        &file.name,
                        &info.name,
                        format!("{} holds it too", files[other.file].name),
                    ));
                }
            }
        }
        Ok(TensorFiles { files, by_name })
    }

    /// All tensors by name.
    pub fn names(&self) -> impl Iterator<Item = (&str, TensorRef)> {
        self.by_name.iter().map(|(name, r)| (name.as_str(), *r))
    }

    /// Looks a tensor up.
    pub fn find(&self, name: &str) -> Option<TensorRef> {
        self.by_name.get(name).copied()
    }

    /// What the header says of a tensor.
    pub fn info(&self, tensor: TensorRef) -> &TensorInfo {
        &self.files[tensor.file].tensors[tensor.tensor]
    }

    /// A tensor's bytes.
    pub fn bytes(&self, tensor: TensorRef) -> &[u8] {
        self.files[tensor.file].bytes(self.info(tensor))
    }

    /// Gives back the memory behind a tensor that was copied.
    pub fn release(&self, tensor: TensorRef) {
        self.files[tensor.file].release(self.info(tensor));
    }

    /// Gives back the memory behind everything.
    pub fn release_all(&self) {
        for file in &self.files {
            file.release_all();
        }
    }

    /// Names of the files.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|f| f.name.as_str())
    }

    /// Where somebody would look for a tensor: the one file, or the list of shards.
    pub fn place(&self) -> &str {
        match self.files.as_slice() {
            [only] => &only.name,
            _ => INDEX,
        }
    }

    /// An error about a tensor, with its file.
    pub fn error(&self, tensor: TensorRef, problem: impl Into<String>) -> CheckpointError {
        let file = &self.files[tensor.file].name;
        CheckpointError::tensor(file, &self.info(tensor).name, problem)
    }
}

fn map_file(dir: &Path, name: &str) -> Result<TensorFile, CheckpointError> {
    let path = dir.join(name);
    let bytes = Bytes::map(&path).map_err(|e| CheckpointError::io(&path, e))?;
    TensorFile::new(name, bytes)
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

fn open_shards(dir: &Path, index: &Path) -> Result<TensorFiles, CheckpointError> {
    let text = std::fs::read(index).map_err(|e| CheckpointError::io(index, e))?;
    let index: Index =
        serde_json::from_slice(&text).map_err(|e| CheckpointError::file(INDEX, format!("{e}")))?;
    let shards: BTreeSet<&String> = index.weight_map.values().collect();
    let mut files = Vec::new();
    for shard in shards {
        check_shard_name(shard)?;
        files.push(map_file(dir, shard)?);
    }
    let files = TensorFiles::new(files)?;
    check_index(&index, &files)?;
    Ok(files)
}

/// A shard lies beside its index: a path to elsewhere is refused.
fn check_shard_name(name: &str) -> Result<(), CheckpointError> {
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(part)), None) if part == name => Ok(()),
        _ => Err(CheckpointError::file(
            INDEX,
            format!("shard {name:?} is not the name of a file in the same folder"),
        )),
    }
}

fn check_index(index: &Index, files: &TensorFiles) -> Result<(), CheckpointError> {
    for (tensor, shard) in &index.weight_map {
        let found = files.find(tensor).map(|r| &files.files[r.file].name);
        if found != Some(shard) {
            let found = found.map_or("no listed shard does".into(), |f| format!("{f} does"));
            let problem = format!("{INDEX} says {shard} holds it, {found}");
            return Err(CheckpointError::tensor(shard, tensor, problem));
        }
    }
    match files
        .names()
        .find(|(n, _)| !index.weight_map.contains_key(*n))
    {
        Some((_, r)) => Err(files.error(r, format!("{INDEX} does not list it"))),
        None => Ok(()),
    }
}
