//! From the tensors of the files to the parameters of the model.
//!
//! Invariants: a tensor is taken by one parameter or refused; a parameter's pieces have its dtype, its
//! format and together its shape. Content is read only where it decides (zero points, a tied head).

use super::error::CheckpointError;
use super::folder::{TensorFiles, TensorRef};
use super::parameters::{Kept, Parameter, Part};
use safetensors::Dtype;
use std::collections::BTreeMap;

/// How a file keeps a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// bf16, or f32 or f16 to be read as such.
    Float,
    /// int8 codes with one scale a row.
    Int8,
}

/// A parameter and the tensors that hold it, in order of rows.
pub struct Weight {
    /// What they fill.
    pub parameter: Parameter,
    /// How they keep it.
    pub stored: Stored,
    /// One for each tensor.
    pub pieces: Vec<Piece>,
}

/// A tensor of a parameter with its scales.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Codes or floats.
    pub weight: TensorRef,
    /// Scales of int8 codes.
    pub scale: Option<TensorRef>,
}

/// What stands before a canonical name in a file.
enum Name<'a> {
    /// A parameter of the text model, without its prefix.
    Text(&'a str),
    /// Part of the vision tower, which is not run here.
    Vision,
    /// Neither.
    Other,
}

fn classify(name: &str) -> Name<'_> {
    if name.starts_with("model.visual.") || name.starts_with("visual.") {
        return Name::Vision;
    }
    if name.starts_with("lm_head.") || name.starts_with("mtp.") {
        return Name::Text(name);
    }
    match name
        .strip_prefix("model.language_model.")
        .or_else(|| name.strip_prefix("model."))
    {
        Some(rest) => Name::Text(rest),
        None => Name::Other,
    }
}

/// The tensors that no parameter has taken yet.
pub struct Resolver<'a> {
    files: &'a TensorFiles,
    left: BTreeMap<String, TensorRef>,
    /// Tensors of the vision tower.
    pub vision: Vec<TensorRef>,
}

impl<'a> Resolver<'a> {
    /// Sorts tensors by what they belong to.
    pub fn new(files: &'a TensorFiles) -> Result<Resolver<'a>, CheckpointError> {
        let mut left: BTreeMap<String, TensorRef> = BTreeMap::new();
        let mut vision = Vec::new();
        for (name, tensor) in files.names() {
            let canonical = match classify(name) {
                Name::Text(rest) => rest,
                Name::Vision => {
                    vision.push(tensor);
                    continue;
                }
                Name::Other => name,
            };
            if let Some(other) = left.insert(canonical.into(), tensor) {
                let problem = format!("{} names the same parameter", files.info(other).name);
                return Err(files.error(tensor, problem));
            }
        }
        Ok(Resolver {
            files,
            left,
            vision,
        })
    }

    /// Whether any tensor of the prediction head is there.
    pub fn has_mtp(&self) -> bool {
        self.left
            .range("mtp.".to_string()..)
            .next()
            .is_some_and(|(name, _)| name.starts_with("mtp."))
    }

    /// Takes a head that repeats the embedding it is tied to.
    pub fn take_tied_head(&mut self) -> Result<bool, CheckpointError> {
        let Some(head) = self.left.remove("lm_head.weight") else {
            return Ok(false);
        };
        let same = self.left.get("embed_tokens.weight").is_some_and(|&embed| {
            let (head, embed) = (self.files.info(head), self.files.info(embed));
            (head.dtype, &head.shape) == (embed.dtype, &embed.shape)
        });
        match same && self.files.bytes(head) == self.files.bytes(self.left["embed_tokens.weight"]) {
            true => Ok(true),
            false => Err(self.files.error(
                head,
                "config.json ties it to the embedding (tie_word_embeddings), but it differs",
            )),
        }
    }

    /// Takes the tensors of a parameter.
    pub fn weight(&mut self, parameter: Parameter) -> Result<Weight, CheckpointError> {
        let whole = parameter.whole();
        let whole = whole.filter(|w| self.left.contains_key(&w.tensor));
        let mut stored = None;
        let mut pieces = Vec::new();
        let parts: Box<dyn Iterator<Item = Part>> = match whole.clone() {
            Some(whole) => Box::new(std::iter::once(whole)),
            None => parameter.split(),
        };
        for part in parts {
            let (piece, found) = self.piece(&parameter, &part)?;
            if stored.is_some_and(|s| s != found) {
                let problem = format!(
                    "its format differs from that of the other tensors of {}",
                    parameter.module
                );
                return Err(self.files.error(piece.weight, problem));
            }
            stored = Some(found);
            pieces.push(piece);
        }
        self.refuse_second_spelling(&parameter, whole.as_ref())?;
        Ok(Weight {
            stored: stored.unwrap_or(Stored::Float),
            parameter,
            pieces,
        })
    }

    /// A fused tensor and per-expert ones for the same parameter fill it twice.
    fn refuse_second_spelling(
        &self,
        parameter: &Parameter,
        whole: Option<&Part>,
    ) -> Result<(), CheckpointError> {
        let Some(whole) = whole else { return Ok(()) };
        let second = parameter.split().next();
        match second.and_then(|part| self.left.get(&part.tensor)) {
            Some(&tensor) => {
                let problem = format!("{} already fills this parameter", whole.tensor);
                Err(self.files.error(tensor, problem))
            }
            None => Ok(()),
        }
    }

    fn piece(
        &mut self,
        parameter: &Parameter,
        part: &Part,
    ) -> Result<(Piece, Stored), CheckpointError> {
        let weight = self.left.remove(&part.tensor).ok_or_else(|| {
            let whole = parameter.whole().map(|w| w.tensor);
            CheckpointError::Missing {
                file: self.files.place().into(),
                parameter: part.tensor.clone(),
                alternative: whole.filter(|w| *w != part.tensor),
            }
        })?;
        if parameter.kept != Kept::Linear {
            self.expect_float(weight)?;
            self.expect_shape(weight, &part.shape)?;
            return Ok((
                Piece {
                    weight,
                    scale: None,
                },
                Stored::Float,
            ));
        }
        let module = part.tensor.strip_suffix(".weight").unwrap_or(&part.tensor);
        let scale = self.left.remove(&format!("{module}.weight_scale"));
        let zero = self.left.remove(&format!("{module}.weight_zero_point"));
        let stored = self.linear_format(weight, scale)?;
        self.expect_shape(weight, &part.shape)?;
        if let Some(scale) = scale {
            self.expect_float(scale)?;
            self.expect_row_shape(scale, part.shape[0])?;
        }
        if let Some(zero) = zero {
            self.expect_symmetric(zero, stored, part.shape[0])?;
        }
        Ok((Piece { weight, scale }, stored))
    }

    fn linear_format(
        &self,
        weight: TensorRef,
        scale: Option<TensorRef>,
    ) -> Result<Stored, CheckpointError> {
        match (self.files.info(weight).dtype, scale) {
            (Dtype::I8, Some(_)) => Ok(Stored::Int8),
            (Dtype::I8, None) => Err(self
                .files
                .error(weight, "is int8, but has no weight_scale beside it")),
            (Dtype::BF16 | Dtype::F32 | Dtype::F16, None) => Ok(Stored::Float),
            (dtype @ (Dtype::BF16 | Dtype::F32 | Dtype::F16), Some(scale)) => {
                Err(self.files.error(
                    scale,
                    format!("scales a weight of {dtype}, expected one of I8"),
                ))
            }
            (dtype, _) => Err(self.files.error(
                weight,
                format!("dtype {dtype}: a linear is BF16, or I8 with a weight_scale (W8A8)"),
            )),
        }
    }

    fn expect_float(&self, tensor: TensorRef) -> Result<(), CheckpointError> {
        match self.files.info(tensor).dtype {
            Dtype::BF16 | Dtype::F32 | Dtype::F16 => Ok(()),
            dtype => Err(self
                .files
                .error(tensor, format!("dtype {dtype}, expected BF16, F32 or F16"))),
        }
    }

    fn expect_shape(&self, tensor: TensorRef, shape: &[usize]) -> Result<(), CheckpointError> {
        let info = self.files.info(tensor);
        if info.shape == shape {
            return Ok(());
        }
        let elements = |shape: &[usize]| shape.iter().map(|&d| d as u128).product::<u128>();
        let half = info.dtype == Dtype::I8 && elements(&info.shape) * 2 == elements(shape);
        let hint = match half {
            true => {
                "; half as many bytes as values looks like packed int4, which is not a format of this loader"
            }
            false => "",
        };
        let problem = format!("shape {:?}, expected {shape:?}{hint}", info.shape);
        Err(self.files.error(tensor, problem))
    }

    /// One value a row: `[N]`, `[N, 1]` or `[1, N]`, which hold the same bytes.
    fn expect_row_shape(&self, tensor: TensorRef, rows: usize) -> Result<(), CheckpointError> {
        let shape = &self.files.info(tensor).shape;
        if [vec![rows], vec![rows, 1], vec![1, rows]].contains(shape) {
            return Ok(());
        }
        let problem = format!("shape {shape:?}, expected [{rows}], [{rows}, 1] or [1, {rows}]");
        Err(self.files.error(tensor, problem))
    }

    /// Zero points are discarded, since they must be zero.
    fn expect_symmetric(
        &self,
        zero: TensorRef,
        stored: Stored,
        rows: usize,
    ) -> Result<(), CheckpointError> {
        if stored == Stored::Float {
            return Err(self
                .files
                .error(zero, "belongs to a weight that is not int8"));
        }
        self.expect_row_shape(zero, rows)?;
        let bytes = self.files.bytes(zero);
        match bytes.iter().position(|&b| b != 0) {
            None => Ok(()),
            Some(byte) => Err(self.files.error(
                zero,
                format!(
                    "row {} is not zero; W8A8 here is symmetric",
                    byte * rows / bytes.len()
                ),
            )),
        }
    }

    /// Refuses what is left.
    pub fn finish(self) -> Result<Vec<TensorRef>, CheckpointError> {
        const SHOWN: usize = 8;
        if self.left.is_empty() {
            return Ok(self.vision);
        }
        let name = |t: &TensorRef| self.files.info(*t).name.clone();
        let mut names: Vec<String> = self.left.values().take(SHOWN).map(name).collect();
        if self.left.len() > SHOWN {
            names.push(format!("and {} more", self.left.len() - SHOWN));
        }
        Err(CheckpointError::Unknown {
            file: self.files.place().into(),
            count: self.left.len(),
            names,
        })
    }
}
