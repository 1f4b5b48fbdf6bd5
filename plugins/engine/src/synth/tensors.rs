//! The tensors of a synthetic checkpoint: those that quantising a checkpoint of transformers would
//! write.
//!
//! Invariant: every parameter of the model is there once, as codes with scales or in bf16.

use super::stream::Stream;
use super::values::Triangle;
use crate::checkpoint::{Parameter, Part, parameters};
use crate::output::{self, Content, file_name, is_quantized, scale_name};
use layerlet_core::config::ModelConfig;
use layerlet_core::numerics::bf16;
use safetensors::Dtype;
use std::borrow::Cow;

pub type OutTensor = output::OutTensor<Random>;

/// What the bytes of a tensor come from.
pub enum Random {
    Codes(Stream),
    Scales(Stream, Triangle),
    Narrow(Stream, Triangle),
}

impl Content for Random {
    fn bytes(&self, shape: &[usize]) -> Cow<'_, [u8]> {
        let count = shape.iter().product();
        Cow::Owned(match *self {
            Random::Codes(stream) => bytemuck::cast_vec(stream.codes(count)),
            Random::Scales(stream, triangle) => stream
                .integers(count, |n| triangle.value(n).to_le_bytes())
                .into_flattened(),
            Random::Narrow(stream, triangle) => stream
                .integers(count, |n| bf16::from_f32(triangle.value(n)).to_le_bytes())
                .into_flattened(),
        })
    }
}

/// Lists the output.
pub fn plan(model: &ModelConfig, seed: u64) -> Vec<OutTensor> {
    let mut all = Vec::new();
    for parameter in parameters(model) {
        let triangle = Triangle::of(&parameter);
        match is_quantized(&parameter) {
            true => {
                for part in parameter.split() {
                    all.extend(int8(part, triangle, seed));
                }
            }
            false => all.extend(unquantized(&parameter).map(|part| narrow(part, triangle, seed))),
        }
    }
    all
}

/// The tensors of a parameter that stays as it is in a bf16 checkpoint, where experts are fused.
fn unquantized(parameter: &Parameter) -> Box<dyn Iterator<Item = Part> + '_> {
    match parameter.whole() {
        Some(whole) => Box::new(std::iter::once(whole)),
        None => parameter.split(),
    }
}

fn int8(part: Part, triangle: Triangle, seed: u64) -> [OutTensor; 2] {
    let name = file_name(&part.tensor);
    let scale = scale_name(&name);
    let scales = OutTensor {
        dtype: Dtype::F32,
        shape: vec![part.shape[0]],
        content: Random::Scales(Stream::new(seed, &scale), triangle.scales()),
        name: scale,
    };
    let codes = OutTensor {
        dtype: Dtype::I8,
        shape: part.shape,
        content: Random::Codes(Stream::new(seed, &name)),
        name,
    };
    [scales, codes]
}

fn narrow(part: Part, triangle: Triangle, seed: u64) -> OutTensor {
    let name = file_name(&part.tensor);
    OutTensor {
        dtype: Dtype::BF16,
        shape: part.shape,
        content: Random::Narrow(Stream::new(seed, &name), triangle),
        name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::{Checkpoint, SINGLE, Stored};
    use crate::synth::{Preset, config};
    use serde_json::{Map, Value, json};
    use std::fs::File;
    use std::io::Write;
    use std::path::Path;

    /// A file of these tensors with a hole where their bytes belong; returns how large they are.
    fn write_sparse(path: &Path, tensors: &[OutTensor]) -> u64 {
        let mut header = Map::new();
        let mut end = 0;
        for tensor in tensors {
            let start = end;
            end += tensor.len() as u64;
            let dtype = tensor.dtype.to_string();
            let entry =
                json!({ "dtype": dtype, "shape": tensor.shape, "data_offsets": [start, end] });
            assert!(
                header.insert(tensor.name.clone(), entry).is_none(),
                "{}",
                tensor.name
            );
        }
        let header = Value::Object(header).to_string();
        let mut file = File::create(path).expect("a file");
        file.write_all(&(header.len() as u64).to_le_bytes())
            .expect("writes");
        file.write_all(header.as_bytes()).expect("writes");
        file.set_len(8 + header.len() as u64 + end).expect("a hole");
        end
    }

    /// The loader has the last word on names, shapes and formats; it reads only headers.
    #[test]
    fn every_preset_is_a_checkpoint() {
        let check = |preset: Preset, bytes: u64| {
            let model = preset.config();
            let dir = tempfile::tempdir().expect("a temporary folder");
            let text = Value::Object(config::config(&model)).to_string();
            std::fs::write(dir.path().join("config.json"), text).expect("writes");
            let size = write_sparse(&dir.path().join(SINGLE), &plan(&model, 0));
            assert_eq!(size, bytes, "{}", preset.name());
            let opened = Checkpoint::open(dir.path()).expect("opens");
            assert_eq!(opened.config.model, model);
            assert_eq!(opened.notes(), [""; 0]);
            for weight in opened.weights() {
                let int8 = weight.stored == Stored::Int8;
                assert_eq!(
                    int8,
                    is_quantized(&weight.parameter),
                    "{}",
                    weight.parameter.module
                );
            }
        };
        check(Preset::Tiny, 662_640);
        check(Preset::Mid, 2_163_984_128);
        check(Preset::Qwen36Layer, 1_948_608_128);
    }
}
