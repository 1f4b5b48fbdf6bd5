//! What may come of reading damaged files: an error that names one of them, or exactly what the valid
//! ones hold. The second is judged by another reader, the crate `safetensors`.

use super::mutate::Files;
use crate::common::loaded::load;
use layerlet_engine::checkpoint::Checkpoint;
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeMap;
use std::path::Path;

/// A checkpoint as loaded, and as the peer reads its files.
pub struct Valid {
    buffers: BTreeMap<String, Vec<u8>>,
    tensors: Tensors,
}

/// Shape, dtype and bytes by name without prefix.
type Tensors = BTreeMap<String, (Vec<usize>, Dtype, Vec<u8>)>;

impl Valid {
    pub fn read(dir: &Path, files: &Files) -> Valid {
        let checkpoint = Checkpoint::open(dir).expect("the valid files open");
        Valid {
            buffers: load(&checkpoint).expect("the valid files load"),
            tensors: by_peer(&checkpoint, files).expect("the valid files are well-formed"),
        }
    }

    /// What is wrong with how these files were read.
    pub fn judge(&self, dir: &Path, files: &Files) -> Result<(), String> {
        let checkpoint = match Checkpoint::open(dir) {
            Ok(checkpoint) => checkpoint,
            Err(error) => return names_a_file(&error.to_string(), dir),
        };
        let tensors = by_peer(&checkpoint, files)?;
        let tied = checkpoint.config.model.tied_embeddings;
        let of_model = |name: &&String| !(tied && *name == "lm_head.weight");
        let found: Vec<_> = tensors.keys().filter(of_model).collect();
        let expected: Vec<_> = self.tensors.keys().filter(of_model).collect();
        if found != expected {
            return Err(format!("it was accepted with the tensors {found:?}"));
        }
        let reshaped = |(name, tensor): &(&String, &(Vec<usize>, Dtype, Vec<u8>))| {
            self.tensors
                .get(*name)
                .is_some_and(|valid| valid.0 != tensor.0)
        };
        if let Some((name, tensor)) = tensors.iter().find(reshaped) {
            return Err(format!("{name} was accepted with the shape {:?}", tensor.0));
        }
        let Ok(loaded) = load(&checkpoint) else {
            return Ok(());
        };
        // Damage to a weight or to its dtype is another valid checkpoint.
        let same = tensors
            .iter()
            .all(|(name, tensor)| self.tensors.get(name) == Some(tensor));
        let right = self.buffers.iter().all(|(name, bytes)| {
            loaded.get(name) == Some(bytes) || (tied && name == "lm_head.weight")
        });
        match same && !right {
            true => Err("it was accepted, but its tensors landed elsewhere".into()),
            false => Ok(()),
        }
    }
}

fn names_a_file(error: &str, dir: &Path) -> Result<(), String> {
    let named = [".json", ".safetensors", &dir.display().to_string()];
    match named.iter().any(|name| error.contains(name)) {
        true => Ok(()),
        false => Err(format!("the error names no file: {error}")),
    }
}

/// The text model's tensors of the files that the loader has read, without prefixes.
fn by_peer(checkpoint: &Checkpoint, files: &Files) -> Result<Tensors, String> {
    let mut all = BTreeMap::new();
    for file in checkpoint.files().files() {
        let read = SafeTensors::deserialize(&files[file]);
        let read = read.map_err(|e| format!("{file} was accepted, the peer refuses it: {e}"))?;
        for (name, view) in read
            .iter()
            .filter(|(name, _)| !name.starts_with("model.visual."))
        {
            let short = name.strip_prefix("model.").unwrap_or(name);
            let short = short.strip_prefix("language_model.").unwrap_or(short);
            let tensor = (
                shape(short, view.shape()),
                view.dtype(),
                view.data().to_vec(),
            );
            if all.insert(short.to_string(), tensor).is_some() {
                return Err(format!("{short} is there twice and was accepted"));
            }
        }
    }
    Ok(all)
}

/// Scales may have a dimension of 1 on either side.
fn shape(name: &str, shape: &[usize]) -> Vec<usize> {
    match name.ends_with("_scale") {
        true => vec![shape.iter().product()],
        false => shape.to_vec(),
    }
}
