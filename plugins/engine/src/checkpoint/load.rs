//! Moves a checkpoint's weights into a model's buffers.
//!
//! Invariants: every weight buffer is written once, from its first byte to its last; bf16 and int8
//! bytes go from the mapping to the backend without a copy in between, others a part at a time; what
//! was copied is given back, so that loading takes the memory of one copy.

use super::folder::{TensorFiles, TensorRef};
use super::resolve::{Stored, Weight};
use super::{Checkpoint, CheckpointError, Kept, values};
use layerlet_core::backend::{Instance, Place};
use layerlet_core::buffer::{BufferError, BufferId, BufferTable, Role};
use layerlet_core::dtype::DType;
use safetensors::Dtype;
use std::collections::{BTreeMap, HashMap};

impl Checkpoint {
    /// Writes every weight of a model's table, each exactly once. `made` names those that the host
    /// makes itself. `progress` hears the bytes written so far.
    pub fn load(
        &self,
        table: &BufferTable,
        made: &[&str],
        instance: &mut dyn Instance,
        mut progress: impl FnMut(u64),
    ) -> Result<(), CheckpointError> {
        let mut sink = Sink {
            buffers: table.iter().map(|(id, d)| (d.name.as_str(), id)).collect(),
            table,
            instance,
            written: BTreeMap::new(),
            total: 0,
        };
        for weight in &self.weights {
            self.load_weight(weight, &mut sink)?;
            progress(sink.total);
        }
        // Reading one tensor maps in parts of its neighbours, which may have been given back before.
        self.files.release_all();
        sink.finish(made)
    }

    fn load_weight(&self, weight: &Weight, sink: &mut Sink) -> Result<(), CheckpointError> {
        let (parameter, files) = (&weight.parameter, &self.files);
        let (buffer, shape) = (parameter.buffer(), &parameter.shape);
        let dtype = match (parameter.kept, weight.stored) {
            (Kept::F32, _) => DType::F32,
            (Kept::Linear, Stored::Int8) => DType::I8,
            _ => DType::Bf16,
        };
        let target = sink.target(&buffer, dtype, shape)?;
        for piece in &weight.pieces {
            match dtype {
                DType::I8 => sink.append(target, files.bytes(piece.weight))?,
                DType::Bf16 => append_bf16(files, piece.weight, target, sink)?,
                _ => {
                    let wide = values::all_widened(files, piece.weight)?;
                    sink.append(target, bytemuck::cast_slice(&wide))?;
                }
            }
            files.release(piece.weight);
        }
        if dtype != DType::I8 {
            return Ok(());
        }
        let rows = &shape[..shape.len() - 1];
        let target = sink.target(&parameter.scale_buffer(), DType::F32, rows)?;
        for scale in weight.pieces.iter().filter_map(|p| p.scale) {
            let scales = values::scales(files, scale)?;
            sink.append(target, bytemuck::cast_slice(&scales))?;
        }
        Ok(())
    }
}

/// The file's own bytes where they are bf16; others are converted a part at a time, since a tensor of
/// all experts takes gigabytes.
fn append_bf16(
    files: &TensorFiles,
    tensor: TensorRef,
    target: BufferId,
    sink: &mut Sink,
) -> Result<(), CheckpointError> {
    const PART: usize = 1 << 20;
    let info = files.info(tensor);
    if info.dtype == Dtype::BF16 {
        return sink.append(target, files.bytes(tensor));
    }
    let count: usize = info.shape.iter().product();
    for start in (0..count).step_by(PART) {
        let part = start..count.min(start + PART);
        sink.append(target, &values::narrowed(files, tensor, part)?)?;
    }
    Ok(())
}

/// A model's buffers with how far each has been filled.
struct Sink<'a> {
    table: &'a BufferTable,
    buffers: HashMap<&'a str, BufferId>,
    instance: &'a mut dyn Instance,
    written: BTreeMap<BufferId, usize>,
    total: u64,
}

impl Sink<'_> {
    fn target(
        &mut self,
        name: &str,
        dtype: DType,
        shape: &[usize],
    ) -> Result<BufferId, CheckpointError> {
        let fail = |e: BufferError| CheckpointError::Device(e.into());
        let id = self.buffers.get(name).copied();
        let id = id.ok_or_else(|| fail(BufferError::NoSuchName { name: name.into() }))?;
        let decl = self.table.get(id).map_err(fail)?;
        if decl.dtype != dtype {
            return Err(fail(BufferError::DType {
                name: name.into(),
                expected: decl.dtype,
                found: dtype,
            }));
        }
        if decl.shape != shape || self.written.insert(id, 0).is_some() {
            return Err(fail(BufferError::Shape {
                name: name.into(),
                expected: format!("{:?}, filled once", decl.shape),
                found: shape.to_vec(),
            }));
        }
        Ok(id)
    }

    fn append(&mut self, id: BufferId, bytes: &[u8]) -> Result<(), CheckpointError> {
        let at = self.written.entry(id).or_default();
        self.instance.write(Place::Model(id), *at, bytes)?;
        *at += bytes.len();
        self.total += bytes.len() as u64;
        Ok(())
    }

    fn finish(self, made: &[&str]) -> Result<(), CheckpointError> {
        for (id, decl) in self.table.iter() {
            let wanted = decl.role == Role::Weight && !made.contains(&decl.name.as_str());
            let written = self.written.get(&id).copied().unwrap_or(0);
            if wanted && written != decl.bytes() {
                return Err(CheckpointError::Unfilled {
                    buffer: decl.name.clone(),
                    written,
                    size: decl.bytes(),
                });
            }
        }
        Ok(())
    }
}
