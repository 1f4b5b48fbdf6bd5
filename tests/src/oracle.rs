//! The traces that transformers left for the tiny checkpoint, as f32 and ids.

use crate::root;
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Folder of the tiny checkpoints and their traces.
pub fn tiny() -> PathBuf {
    root().join("tests/oracle/tiny")
}

/// A tensor, widened to f32 (ids below 2^24 stay exact).
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// As in the file.
    pub shape: Vec<usize>,
    /// In order of the file.
    pub values: Vec<f32>,
}

impl Tensor {
    /// Row `t` of a matrix.
    pub fn row(&self, t: usize) -> &[f32] {
        let width = self.values.len() / self.shape[0];
        &self.values[t * width..(t + 1) * width]
    }

    /// Rows of a matrix.
    pub fn rows(&self) -> usize {
        self.shape[0]
    }
}

/// Every tensor of a safetensors file by name.
pub struct Trace(BTreeMap<String, Tensor>);

impl Trace {
    /// Reads bytes.
    pub fn parse(bytes: &[u8]) -> Trace {
        let file = SafeTensors::deserialize(bytes).expect("a trace is a safetensors file");
        let tensors = file.iter().map(|(name, view)| {
            let values = widen(view.dtype(), view.data());
            let shape = view.shape().to_vec();
            (name.to_string(), Tensor { shape, values })
        });
        Trace(tensors.collect())
    }

    /// Reads a file of [`tiny`].
    pub fn read(name: &str) -> Trace {
        let path = tiny().join(name);
        let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Trace::parse(&bytes)
    }

    /// A tensor that must be there.
    pub fn get(&self, name: &str) -> &Tensor {
        let tensor = self.0.get(name);
        tensor.unwrap_or_else(|| panic!("the trace has no {name}"))
    }

    /// All names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The ids that were run.
    pub fn ids(&self) -> Vec<u32> {
        let ids = &self.get("input_ids").values;
        ids.iter().map(|id| *id as u32).collect()
    }
}

fn widen(dtype: Dtype, data: &[u8]) -> Vec<f32> {
    match dtype {
        Dtype::BF16 => data
            .chunks_exact(2)
            .map(|b| half::bf16::from_le_bytes([b[0], b[1]]).to_f32())
            .collect(),
        Dtype::F32 => bytemuck::pod_collect_to_vec(data),
        Dtype::I32 => bytemuck::pod_collect_to_vec::<u8, i32>(data)
            .into_iter()
            .map(|v| v as f32)
            .collect(),
        other => panic!("traces hold no {other:?}"),
    }
}

/// Root mean square of the difference, relative to that of the expected values.
pub fn relative_rms(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let squares = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>();
    let difference = found.iter().zip(expected);
    let error = squares(&mut difference.map(|(f, e)| f64::from(*f) - f64::from(*e)));
    let size = squares(&mut expected.iter().map(|e| f64::from(*e)));
    (error / size).sqrt()
}

/// Mean of the absolute differences.
pub fn mean_difference(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let sum: f64 = a.iter().zip(b).map(|(a, b)| f64::from((a - b).abs())).sum();
    sum / a.len() as f64
}

/// Index of the largest value, the first of equal ones.
pub fn argmax(row: &[f32]) -> usize {
    let better = |best: usize, i: usize| if row[i] > row[best] { i } else { best };
    (0..row.len()).fold(0, better)
}
