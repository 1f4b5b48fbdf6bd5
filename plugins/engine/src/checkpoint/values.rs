//! The values of a file's tensors, as the kernels want them. Nothing is rounded: a value that the
//! kept type cannot hold is refused.
//!
//! Invariant: a value that is handed on has in f32 the bits that the file's value has in f32.

use super::error::CheckpointError;
use super::folder::{TensorFiles, TensorRef};
use half::{bf16, f16};
use safetensors::Dtype;
use std::ops::Range;

/// Some of a tensor's values in f32, which holds every value of the float types of a checkpoint.
pub fn widened(
    files: &TensorFiles,
    tensor: TensorRef,
    range: Range<usize>,
) -> Result<Vec<f32>, CheckpointError> {
    let info = files.info(tensor);
    let size = info.dtype.bitsize() / 8;
    let bytes = &files.bytes(tensor)[range.start * size..range.end * size];
    match info.dtype {
        Dtype::BF16 => Ok(words(bytes, |w| bf16::from_le_bytes(w).to_f32()).collect()),
        Dtype::F16 => Ok(words(bytes, |w| f16::from_le_bytes(w).to_f32()).collect()),
        Dtype::F32 => Ok(words(bytes, f32::from_le_bytes).collect()),
        dtype => Err(files.error(tensor, format!("dtype {dtype}, expected BF16, F32 or F16"))),
    }
}

/// All of a tensor's values in f32.
pub fn all_widened(files: &TensorFiles, tensor: TensorRef) -> Result<Vec<f32>, CheckpointError> {
    widened(files, tensor, 0..files.info(tensor).shape.iter().product())
}

/// Some of a tensor's values as bytes of bf16, which must change none of them.
pub fn narrowed(
    files: &TensorFiles,
    tensor: TensorRef,
    range: Range<usize>,
) -> Result<Vec<u8>, CheckpointError> {
    let values = widened(files, tensor, range.clone())?;
    let mut bytes = Vec::with_capacity(values.len() * 2);
    for (i, value) in range.zip(values) {
        let narrow = bf16::from_f32(value);
        if narrow.to_f32().to_bits() != value.to_bits() {
            let problem = format!(
                "value {i} is {value}, which bf16 cannot hold; convert the checkpoint to bf16 first"
            );
            return Err(files.error(tensor, problem));
        }
        bytes.extend(narrow.to_le_bytes());
    }
    Ok(bytes)
}

/// Scales of int8 rows: finite and not negative.
pub fn scales(files: &TensorFiles, tensor: TensorRef) -> Result<Vec<f32>, CheckpointError> {
    let scales = all_widened(files, tensor)?;
    match scales.iter().position(|s| !s.is_finite() || *s < 0.0) {
        None => Ok(scales),
        Some(row) => {
            let problem = format!("row {row} has scale {}", scales[row]);
            Err(files.error(tensor, problem))
        }
    }
}

fn words<const N: usize, T>(bytes: &[u8], read: fn([u8; N]) -> T) -> impl Iterator<Item = T> {
    bytes.as_chunks::<N>().0.iter().map(move |word| read(*word))
}
