//! The tensors of the output: what they are called and how their bytes come about.
//!
//! Invariant: every tensor of the input is in the output once, as a copy, or as codes and scales of all
//! its rows.

use super::{QuantizeError, rows};
use crate::checkpoint::{Checkpoint, TensorInfo, TensorRef, Weight, widened};
use crate::output::{self, file_name, is_quantized, scale_name};
use rayon::prelude::*;
use safetensors::Dtype;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

type OutTensor<'a> = output::OutTensor<Content<'a>>;

/// What the bytes of a tensor of the output come from.
pub enum Content<'a> {
    /// The bytes of a tensor of the input.
    Copy(&'a Checkpoint, TensorRef),
    /// Codes of some of its rows.
    Codes(&'a Checkpoint, TensorRef, Range<usize>, Arc<[f32]>),
    /// Their scales.
    Scales(Arc<[f32]>),
}

impl Content<'_> {
    /// Whether it is an int8 weight.
    pub fn is_codes(&self) -> bool {
        matches!(self, Content::Codes(..))
    }
}

impl output::Content for Content<'_> {
    fn bytes(&self, shape: &[usize]) -> Cow<'_, [u8]> {
        match self {
            Content::Copy(checkpoint, tensor) => Cow::Borrowed(checkpoint.files().bytes(*tensor)),
            Content::Scales(scales) => Cow::Borrowed(bytemuck::cast_slice(scales)),
            Content::Codes(checkpoint, tensor, rows, scales) => {
                let values = values(checkpoint, *tensor, rows, shape[1]);
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
        match is_quantized(&weight.parameter) {
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
            let name = file_name(&part.tensor);
            all.push(OutTensor {
                name: scale_name(&name),
                dtype: Dtype::F32,
                shape: vec![scales.len()],
                content: Content::Scales(scales.clone()),
            });
            all.push(OutTensor {
                name,
                dtype: Dtype::I8,
                shape: part.shape,
                content: Content::Codes(checkpoint, piece.weight, rows, scales),
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
    let name = match text {
        true => file_name(canonical(&info.name)),
        false => info.name.clone(),
    };
    OutTensor {
        name,
        dtype: info.dtype,
        shape: info.shape.clone(),
        content: Content::Copy(checkpoint, tensor),
    }
}

/// Name of a tensor of the text model without what stands before it in the input.
fn canonical(name: &str) -> &str {
    let rest = name.strip_prefix("model.").unwrap_or(name);
    rest.strip_prefix("language_model.").unwrap_or(rest)
}
