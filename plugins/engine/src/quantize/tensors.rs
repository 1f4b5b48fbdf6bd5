//! The tensors of the output: what they are called and how their bytes come about.
//!
//! Invariant: every tensor of the input is in the output once, as a copy, or as codes and scales of all
//! its rows.

use super::{QuantizeError, rows};
use crate::checkpoint::{Checkpoint, Kept, TensorInfo, TensorRef, Weight, widened};
use rayon::prelude::*;
use safetensors::Dtype;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// A tensor of the output.
pub struct OutTensor<'a> {
    /// Name in the file.
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    checkpoint: &'a Checkpoint,
    content: Content,
}

enum Content {
    /// The bytes of a tensor of the input.
    Copy(TensorRef),
    /// Codes of some of its rows.
    Codes(TensorRef, Range<usize>, Arc<[f32]>),
    /// Their scales.
    Scales(Arc<[f32]>),
}

impl OutTensor<'_> {
    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.bitsize() / 8
    }

    /// Whether it is an int8 weight.
    pub fn is_codes(&self) -> bool {
        matches!(self.content, Content::Codes(..))
    }

    /// Its bytes, computed now.
    pub fn data(&self) -> Cow<'_, [u8]> {
        match &self.content {
            Content::Copy(tensor) => Cow::Borrowed(self.checkpoint.files().bytes(*tensor)),
            Content::Scales(scales) => Cow::Borrowed(bytemuck::cast_slice(scales)),
            Content::Codes(tensor, rows, scales) => {
                let values = values(self.checkpoint, *tensor, rows, self.shape[1]);
                Cow::Owned(codes(&values, scales))
            }
        }
    }
}

fn codes(values: &[f32], scales: &[f32]) -> Vec<u8> {
    let mut codes = vec![0u8; values.len()];
    let columns = values.len() / scales.len();
    codes
        .par_chunks_mut(columns)
        .zip(values.par_chunks(columns))
        .zip(scales)
        .for_each(|((codes, values), &scale)| {
            for (code, &value) in codes.iter_mut().zip(values) {
                *code = rows::code(value, scale) as u8;
            }
        });
    codes
}

/// Some rows of a float tensor, whose dtype the checkpoint has checked.
fn values(
    checkpoint: &Checkpoint,
    tensor: TensorRef,
    rows: &Range<usize>,
    columns: usize,
) -> Vec<f32> {
    widened(
        checkpoint.files(),
        tensor,
        rows.start * columns..rows.end * columns,
    )
    .expect("a linear of a float checkpoint is float")
}

/// Lists the output and computes all scales.
pub fn plan(checkpoint: &Checkpoint) -> Result<Vec<OutTensor<'_>>, QuantizeError> {
    let mut all = Vec::new();
    for weight in checkpoint.weights() {
        match is_quantized(weight) {
            true => plan_linear(checkpoint, weight, &mut all)?,
            false => {
                for piece in &weight.pieces {
                    all.push(copy(checkpoint, piece.weight, true));
                }
            }
        }
    }
    for &tensor in checkpoint.vision() {
        all.push(copy(checkpoint, tensor, false));
    }
    Ok(all)
}

fn is_quantized(weight: &Weight) -> bool {
    let module = &weight.parameter.module;
    weight.parameter.kept == Kept::Linear
        && module.starts_with("layers.")
        && !module.ends_with(".mlp.gate")
        && !module.ends_with(".mlp.shared_expert_gate")
}

fn plan_linear<'a>(
    checkpoint: &'a Checkpoint,
    weight: &Weight,
    all: &mut Vec<OutTensor<'a>>,
) -> Result<(), QuantizeError> {
    // A fused tensor is cut into the parts that it fuses; others are their own only part.
    let mut parts = weight.parameter.split();
    for piece in &weight.pieces {
        let info = checkpoint.files().info(piece.weight);
        let total: usize = info.shape[..info.shape.len() - 1].iter().product();
        let mut start = 0;
        while start < total {
            let part = parts
                .next()
                .expect("the parts of a parameter cover its rows");
            let rows = start..start + part.shape[0];
            start = rows.end;
            let columns = part.shape[1];
            let values = values(checkpoint, piece.weight, &rows, columns);
            let scales = scales(info, rows.start, &values)?;
            let name = format!("model.language_model.{}", part.tensor);
            all.push(OutTensor {
                name: format!("{name}_scale"),
                dtype: Dtype::F32,
                shape: vec![scales.len()],
                checkpoint,
                content: Content::Scales(scales.clone()),
            });
            all.push(OutTensor {
                name,
                dtype: Dtype::I8,
                shape: part.shape,
                checkpoint,
                content: Content::Codes(piece.weight, rows, scales),
            });
        }
    }
    Ok(())
}

/// Scales of the rows from `start` on; the first row that has none is refused.
fn scales(info: &TensorInfo, start: usize, values: &[f32]) -> Result<Arc<[f32]>, QuantizeError> {
    let columns = info.shape[info.shape.len() - 1];
    let scales: Vec<_> = values.par_chunks(columns).map(rows::scale).collect();
    let named = scales.into_iter().enumerate().map(|(row, scale)| {
        scale.map_err(|value| QuantizeError::NotFinite {
            tensor: info.name.clone(),
            row: index(start + row, &info.shape),
            value,
        })
    });
    named.collect()
}

/// Where a row is in a tensor of this shape.
fn index(mut row: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = Vec::new();
    for &size in shape[..shape.len() - 1].iter().rev() {
        index.insert(0, row % size);
        row /= size;
    }
    index
}

fn copy<'a>(checkpoint: &'a Checkpoint, tensor: TensorRef, text: bool) -> OutTensor<'a> {
    let info = checkpoint.files().info(tensor);
    let name = match ["lm_head.", "mtp."]
        .iter()
        .any(|top| info.name.starts_with(top))
    {
        false if text => {
            let rest = info.name.strip_prefix("model.").unwrap_or(&info.name);
            let rest = rest.strip_prefix("language_model.").unwrap_or(rest);
            format!("model.language_model.{rest}")
        }
        _ => info.name.clone(),
    };
    OutTensor {
        name,
        dtype: info.dtype,
        shape: info.shape.clone(),
        checkpoint,
        content: Content::Copy(tensor),
    }
}
