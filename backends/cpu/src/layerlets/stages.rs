//! Recognises stages by the buffers between them.

use crate::linear::Weights;
use layerlet_core::buffer::Buf;
use layerlet_core::launch::Launch;
use layerlet_core::memory::Memory;
use layerlet_core::numerics::bf16;
use layerlet_core::ops::{QuantizeRows, SiluMul};

/// The only stage of a kind that meets a condition: `find!(stages, SiluMul(op) if op.out == y)`.
macro_rules! find {
    ($stages:expr, $kind:ident($op:ident) $(if $condition:expr)?) => {
        $stages.iter().find_map(|stage| match stage {
            layerlet_core::launch::Launch::$kind($op) $(if $condition)? => Some($op),
            _ => None,
        })
    };
}
pub(super) use find;

/// The weights of a linear stage, dense or of all experts.
#[derive(Clone, Copy)]
pub enum WeightBufs {
    Bf16(Buf<bf16>),
    W8A8(Buf<i8>, Buf<f32>),
}

impl WeightBufs {
    /// The weights behind the handles.
    pub fn get<'a>(&self, memory: &'a Memory<'_>) -> Weights<'a> {
        match *self {
            WeightBufs::Bf16(weight) => Weights::Bf16(memory.get(weight)),
            WeightBufs::W8A8(weight, scale) => Weights::W8A8(memory.get(weight), memory.get(scale)),
        }
    }
}

/// Where a linear stage takes its input from.
#[derive(Clone)]
pub enum Source {
    /// bf16 rows.
    Bf16(Buf<bf16>),
    /// Codes that a launch before this one computed.
    Codes(Buf<i8>, Buf<f32>),
    /// Codes that a stage computes.
    Quantize(QuantizeRows),
}

/// A linear layer among the stages.
#[derive(Clone)]
pub struct LinearStage {
    pub weights: WeightBufs,
    pub source: Source,
    pub out: Buf<bf16>,
    /// Output width.
    pub n: usize,
    /// Input width.
    pub k: usize,
}

/// The dense linear layer that writes `out`.
pub fn linear(stages: &[Launch], memory: &Memory<'_>, out: Buf<bf16>) -> Option<LinearStage> {
    let bf16 = find!(stages, LinearBf16(op) if op.out == out).map(|op| {
        let [n, k] = memory.dims(op.weight);
        (WeightBufs::Bf16(op.weight), Source::Bf16(op.x), n, k)
    });
    let w8a8 = || {
        let op = find!(stages, LinearW8A8(op) if op.out == out)?;
        let [n, k] = memory.dims(op.weight);
        let weights = WeightBufs::W8A8(op.weight, op.weight_scale);
        Some((weights, codes_source(stages, op.codes, op.scale), n, k))
    };
    let (weights, source, n, k) = bf16.or_else(w8a8)?;
    Some(LinearStage {
        weights,
        source,
        out,
        n,
        k,
    })
}

/// The linear layer of all experts that writes `out`.
pub fn grouped(stages: &[Launch], memory: &Memory<'_>, out: Buf<bf16>) -> Option<LinearStage> {
    let bf16 = find!(stages, GroupedLinearBf16(op) if op.out == out).map(|op| {
        let [_, n, k] = memory.dims(op.weight);
        (WeightBufs::Bf16(op.weight), Source::Bf16(op.x), n, k)
    });
    let w8a8 = || {
        let op = find!(stages, GroupedLinearW8A8(op) if op.out == out)?;
        let [_, n, k] = memory.dims(op.weight);
        let weights = WeightBufs::W8A8(op.weight, op.weight_scale);
        Some((weights, codes_source(stages, op.codes, op.scale), n, k))
    };
    let (weights, source, n, k) = bf16.or_else(w8a8)?;
    Some(LinearStage {
        weights,
        source,
        out,
        n,
        k,
    })
}

fn codes_source(stages: &[Launch], codes: Buf<i8>, scale: Buf<f32>) -> Source {
    match find!(stages, QuantizeRows(op) if op.codes == codes && op.scale == scale) {
        Some(op) => Source::Quantize(op.clone()),
        None => Source::Codes(codes, scale),
    }
}

/// Up projection, activation and down projection, of a dense layer or of all experts.
pub struct MlpStages {
    pub up: LinearStage,
    pub silu: SiluMul,
    pub down: LinearStage,
}

impl MlpStages {
    /// The chain that ends in `down`, whose parts `find` looks up.
    pub fn ending_in(
        stages: &[Launch],
        memory: &Memory<'_>,
        down: LinearStage,
        find_linear: impl Fn(&[Launch], &Memory<'_>, Buf<bf16>) -> Option<LinearStage>,
    ) -> Option<MlpStages> {
        let activated = match &down.source {
            Source::Bf16(x) => *x,
            Source::Quantize(op) => op.x,
            Source::Codes(..) => return None,
        };
        let silu = find!(stages, SiluMul(op) if op.out == activated)?.clone();
        let up = find_linear(stages, memory, silu.gate_up)?;
        (up.n == 2 * down.k).then_some(MlpStages { up, silu, down })
    }

    /// How many stages these are, without the quantisation of the input.
    pub fn count(&self) -> usize {
        3 + usize::from(matches!(self.down.source, Source::Quantize(_)))
    }
}
