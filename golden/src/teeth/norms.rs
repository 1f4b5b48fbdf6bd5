//! Mutants of the norms.

use super::{Mutant, mutant};
use layerlet_core::launch::LaunchError;
use layerlet_core::memory::Memory;
use layerlet_core::numerics::{bf16, lane_sum, round_bf16, rsqrt};
use layerlet_core::ops::{AddRmsNorm, RmsNorm, WeightOffset};

pub const MUTANTS: &[Mutant] = &[
    mutant!(
        "rms_norm",
        "rounds between scale and weight",
        RmsNorm,
        |op, m, fault| { rms_norm(op, m, fault, false) }
    ),
    mutant!(
        "rms_norm",
        "sums the squares one after the other",
        RmsNorm,
        |op, m, fault| { rms_norm(op, m, false, fault) }
    ),
    mutant!(
        "add_rms_norm",
        "normalises the sum before it is rounded",
        AddRmsNorm,
        add_rms_norm
    ),
];

struct Faults {
    rounds_twice: bool,
    sequential: bool,
}

fn norm_row(
    x: &[f32],
    weight: &[f32],
    (eps, offset): (f32, WeightOffset),
    faults: &Faults,
    out: &mut [bf16],
) {
    let squares = x.iter().map(|x| x * x);
    let sum = match faults.sequential {
        true => squares.fold(0.0, |sum, square| sum + square),
        false => lane_sum(squares),
    };
    let scale = rsqrt(sum / x.len() as f32 + eps);
    for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
        let mut scaled = x * scale;
        if faults.rounds_twice {
            scaled = round_bf16(scaled).to_f32();
        }
        let factor = match offset {
            WeightOffset::One => 1.0 + weight,
            WeightOffset::Zero => *weight,
        };
        *out = round_bf16(scaled * factor);
    }
}

fn rms_norm(
    op: &RmsNorm,
    memory: &mut Memory<'_>,
    rounds_twice: bool,
    sequential: bool,
) -> Result<(), LaunchError> {
    let faults = Faults {
        rounds_twice,
        sequential,
    };
    let mut out = memory.take(op.out);
    let (x, weight) = (memory.get(op.x), memory.get(op.weight));
    let width = weight.len();
    for (x, out) in x.chunks_exact(op.stride).zip(out.chunks_exact_mut(width)) {
        let x: Vec<f32> = x[..width].iter().map(|x| x.to_f32()).collect();
        norm_row(&x, weight, (op.eps, op.offset), &faults, out);
    }
    memory.put(op.out, out);
    Ok(())
}

fn add_rms_norm(op: &AddRmsNorm, memory: &mut Memory<'_>, fault: bool) -> Result<(), LaunchError> {
    let faults = Faults {
        rounds_twice: false,
        sequential: false,
    };
    let (mut sum, mut out) = (memory.take(op.sum), memory.take(op.out));
    let (x, delta) = (memory.get(op.x), memory.get(op.delta));
    let weight = memory.get(op.weight);
    let exact: Vec<f32> = x
        .iter()
        .zip(delta)
        .map(|(x, delta)| x.to_f32() + delta.to_f32())
        .collect();
    for (sum, exact) in sum.iter_mut().zip(&exact) {
        *sum = round_bf16(*exact);
    }
    let stored: Vec<f32> = sum.iter().map(|x| x.to_f32()).collect();
    let normed = if fault { exact } else { stored };
    let width = weight.len();
    for (x, out) in normed.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
        norm_row(x, weight, (op.eps, op.offset), &faults, out);
    }
    memory.put(op.sum, sum);
    memory.put(op.out, out);
    Ok(())
}
