//! The oracles' checkpoints, and changed copies of them in memory.
#![allow(dead_code)]

pub mod loaded;
pub mod micro;
pub mod words;

use layerlet_engine::checkpoint::{
    Bytes, Checkpoint, CheckpointError, Config, TensorFile, TensorFiles,
};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use std::path::{Path, PathBuf};

/// Folder of an oracle's checkpoint: `bf16`, `hf` or `quark`.
pub fn tiny(name: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/oracle/tiny");
    root.join(name)
}

#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub data: Vec<u8>,
}

/// A checkpoint that tests may change.
#[derive(Clone)]
pub struct Draft {
    pub config: serde_json::Value,
    pub tensors: Vec<Tensor>,
}

impl Draft {
    pub fn read(name: &str) -> Draft {
        let read = |file: &str| std::fs::read(tiny(name).join(file)).expect(file);
        let bytes = read("model.safetensors");
        let file = SafeTensors::deserialize(&bytes).expect("an oracle is well-formed");
        let tensors = file.iter().map(|(name, view)| Tensor {
            name: name.into(),
            dtype: view.dtype(),
            shape: view.shape().to_vec(),
            data: view.data().to_vec(),
        });
        let mut tensors: Vec<Tensor> = tensors.collect();
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        Draft {
            config: serde_json::from_slice(&read("config.json"))
                .expect("an oracle's config is JSON"),
            tensors,
        }
    }

    pub fn get(&mut self, name: &str) -> &mut Tensor {
        let found = self.tensors.iter_mut().find(|t| t.name == name);
        found.unwrap_or_else(|| panic!("{name} is not in the draft"))
    }

    pub fn remove(&mut self, name: &str) -> Tensor {
        let at = self.tensors.iter().position(|t| t.name == name);
        self.tensors
            .remove(at.unwrap_or_else(|| panic!("{name} is not in the draft")))
    }

    pub fn add(&mut self, name: &str, dtype: Dtype, shape: &[usize], data: Vec<u8>) {
        self.tensors.push(Tensor {
            name: name.into(),
            dtype,
            shape: shape.to_vec(),
            data,
        });
    }

    pub fn file(&self) -> Vec<u8> {
        let views = self.tensors.iter().map(|t| {
            let view = TensorView::new(t.dtype, t.shape.clone(), &t.data);
            (
                t.name.clone(),
                view.expect("a draft's tensors are well-formed"),
            )
        });
        safetensors::serialize(views, None).expect("a draft serialises")
    }

    /// Writes it as a folder's `config.json` and `model.safetensors`.
    pub fn write(&self, folder: &Path) {
        let write = |name: &str, content: &[u8]| {
            std::fs::write(folder.join(name), content).expect("a temporary file");
        };
        write("config.json", self.config.to_string().as_bytes());
        write("model.safetensors", &self.file());
    }

    pub fn open(&self) -> Result<Checkpoint, CheckpointError> {
        let config = Config::parse(self.config.to_string().as_bytes())?;
        let file = TensorFile::new("model.safetensors", Bytes::Owned(self.file()))?;
        Checkpoint::new(config, TensorFiles::new(vec![file])?)
    }

    /// The message with which it is refused.
    pub fn refusal(&self) -> String {
        match self.open() {
            Ok(_) => panic!("was not refused"),
            Err(e) => e.to_string(),
        }
    }
}
