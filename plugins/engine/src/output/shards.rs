//! Files of the output: one, or as many as the limit asks for, with their index.
//!
//! Invariants: only a file of one tensor is over the limit; the index lists each tensor once.

use super::{Content, OutTensor, OutputError, Progress};
use crate::checkpoint::{INDEX, SINGLE};
use safetensors::{Dtype, View};
use serde_json::json;
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::{fs, io};

/// Writes all tensors; returns the files' names and their bytes of data.
pub fn write_shards<C: Content>(
    to: &Path,
    tensors: &[OutTensor<C>],
    limit: u64,
    progress: &Progress,
) -> Result<(Vec<String>, u64), OutputError> {
    let groups = group(tensors, limit);
    let total: u64 = tensors.iter().map(|t| t.len() as u64).sum();
    let done = Cell::new(0);
    let count = groups.len();
    let name = |i: usize| match count {
        1 => SINGLE.to_string(),
        _ => format!("model-{:05}-of-{count:05}.safetensors", i + 1),
    };
    for (i, group) in groups.iter().enumerate() {
        let views = group.iter().map(|tensor| {
            let view = Counted {
                tensor,
                done: &done,
                total,
                progress,
            };
            (tensor.name.as_str(), view)
        });
        let metadata = HashMap::from([("format".to_string(), "pt".to_string())]);
        let path = to.join(name(i));
        let readers = usual_permissions(&path).map_err(|e| OutputError::new(&path, e))?;
        safetensors::serialize_to_file(views, Some(metadata), &path)
            .map_err(|e| OutputError::new(&path, e))?;
        fs::set_permissions(&path, readers).map_err(|e| OutputError::new(&path, e))?;
    }
    if count > 1 {
        write_index(to, &groups, total, name)?;
    }
    Ok(((0..count).map(name).collect(), total))
}

/// Who may read a new file here. The crate that writes shards moves a private temporary file into place.
fn usual_permissions(path: &Path) -> io::Result<fs::Permissions> {
    Ok(fs::File::create(path)?.metadata()?.permissions())
}

/// Fills files in order of the tensors; a tensor over the limit gets a file of its own.
fn group<C>(tensors: &[OutTensor<C>], limit: u64) -> Vec<Vec<&OutTensor<C>>> {
    let mut groups: Vec<Vec<&OutTensor<C>>> = vec![Vec::new()];
    let mut size = 0;
    for tensor in tensors {
        let len = tensor.len() as u64;
        if size > 0 && size + len > limit {
            groups.push(Vec::new());
            size = 0;
        }
        size += len;
        groups.last_mut().expect("there is a first").push(tensor);
    }
    groups
}

fn write_index<C>(
    to: &Path,
    groups: &[Vec<&OutTensor<C>>],
    total: u64,
    name: impl Fn(usize) -> String,
) -> Result<(), OutputError> {
    let mut map = BTreeMap::new();
    for (i, group) in groups.iter().enumerate() {
        map.extend(group.iter().map(|t| (t.name.as_str(), name(i))));
    }
    let index = json!({ "metadata": { "total_size": total }, "weight_map": map });
    let path = to.join(INDEX);
    let text = serde_json::to_string_pretty(&index).expect("strings and numbers are JSON");
    std::fs::write(&path, text).map_err(|e| OutputError::new(&path, e))
}

/// A tensor that reports when its bytes are asked for.
struct Counted<'a, C> {
    tensor: &'a OutTensor<C>,
    done: &'a Cell<u64>,
    total: u64,
    progress: &'a Progress<'a>,
}

impl<C: Content> View for Counted<'_, C> {
    fn dtype(&self) -> Dtype {
        self.tensor.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.tensor.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let data = self.tensor.content.bytes(&self.tensor.shape);
        self.done.set(self.done.get() + data.len() as u64);
        (self.progress)(self.done.get(), self.total);
        data
    }

    fn data_len(&self) -> usize {
        self.tensor.len()
    }
}
