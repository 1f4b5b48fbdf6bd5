//! More mutants of what ranks do with a cut linear layer, on kernels written apart: maxima, codes,
//! sums, joined columns.

use super::{Mutant, mutant};
use layerlet_core::launch::{LaunchError, Operation};
use layerlet_core::memory::Memory;
use layerlet_core::numerics::{round_bf16, round_half_even};
use layerlet_core::ops::{AllGatherColumns, LinearW8A8Partial, QuantizeRowsBy, RowAbsmax};

pub const MUTANTS: &[Mutant] = &[
    mutant!(
        "row_absmax",
        "loses a NaN, as maxNum does",
        RowAbsmax,
        row_absmax
    ),
    mutant!(
        "quantize_rows_by",
        "rounds half away from zero",
        QuantizeRowsBy,
        |op, m, fault: bool| quantize_rows_by(op, m, fault.then_some(Codes::HalfAway))
    ),
    mutant!(
        "quantize_rows_by",
        "takes the maximum of its own part of the row",
        QuantizeRowsBy,
        |op, m, fault: bool| quantize_rows_by(op, m, fault.then_some(Codes::OwnMaximum))
    ),
    mutant!(
        "linear_w8a8_partial",
        "drops what K leaves beyond 4",
        LinearW8A8Partial,
        partial
    ),
    mutant!(
        "all_gather_columns",
        "repeats its own columns where the other ranks' are missing",
        AllGatherColumns,
        |op, m, fault: bool| all_gather_columns(op, m, fault.then_some(Join::Repeats))
    ),
    mutant!(
        "all_gather_columns",
        "flushes subnormals as it copies",
        AllGatherColumns,
        |op, m, fault: bool| all_gather_columns(op, m, fault.then_some(Join::Flushes))
    ),
];

fn row_absmax(op: &RowAbsmax, memory: &mut Memory<'_>, fault: bool) -> Result<(), LaunchError> {
    let mut absmax = memory.take(op.absmax);
    let [_, width] = memory.dims(op.x);
    for (absmax, x) in absmax.iter_mut().zip(memory.get(op.x).chunks_exact(width)) {
        let larger = |max: f32, x: f32| match max.is_nan() || x.is_nan() {
            true if !fault => f32::NAN,
            _ => max.max(x),
        };
        *absmax = x.iter().map(|x| x.to_f32().abs()).fold(0.0, larger);
    }
    memory.put(op.absmax, absmax);
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
enum Codes {
    HalfAway,
    OwnMaximum,
}

fn quantize_rows_by(
    op: &QuantizeRowsBy,
    memory: &mut Memory<'_>,
    fault: Option<Codes>,
) -> Result<(), LaunchError> {
    let (mut codes, mut scale) = (memory.take(op.codes), memory.take(op.scale));
    let [_, width] = memory.dims(op.x);
    let inputs = memory.get(op.x).chunks_exact(width);
    let inputs = inputs.zip(memory.get(op.absmax));
    let outputs = codes.chunks_exact_mut(width).zip(&mut scale);
    for ((x, &given), (codes, scale)) in inputs.zip(outputs) {
        let own = x.iter().map(|x| x.to_f32().abs()).fold(0.0, f32::max);
        let absmax = match fault {
            Some(Codes::OwnMaximum) if given.is_finite() => own,
            _ => given,
        };
        codes.fill(0);
        *scale = absmax.max(1e-10) / 127.0;
        if !absmax.is_finite() {
            *scale = f32::NAN;
        } else if absmax >= 1e-10 {
            let reciprocal = 1.0 / *scale;
            for (code, x) in codes.iter_mut().zip(x) {
                let scaled = x.to_f32() * reciprocal;
                let rounded = match fault {
                    Some(Codes::HalfAway) => scaled.round(),
                    _ => round_half_even(scaled),
                };
                *code = rounded.clamp(-127.0, 127.0) as i8;
            }
        }
    }
    memory.put(op.codes, codes);
    memory.put(op.scale, scale);
    Ok(())
}

fn partial(
    op: &LinearW8A8Partial,
    memory: &mut Memory<'_>,
    fault: bool,
) -> Result<(), LaunchError> {
    let mut acc = memory.take(op.acc);
    let [n, k] = memory.dims(op.weight);
    let (codes, weight) = (memory.get(op.codes), memory.get(op.weight));
    let used = if fault { k - k % 4 } else { k };
    for (i, acc) in acc.iter_mut().enumerate() {
        let (row, column) = (&codes[i / n * k..][..used], &weight[i % n * k..]);
        let pairs = row.iter().zip(column);
        *acc = pairs.map(|(c, w)| i32::from(*c) * i32::from(*w)).sum();
    }
    memory.put(op.acc, acc);
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
enum Join {
    Repeats,
    Flushes,
}

fn all_gather_columns(
    op: &AllGatherColumns,
    memory: &mut Memory<'_>,
    fault: Option<Join>,
) -> Result<(), LaunchError> {
    let ([_, part], [_, n]) = (memory.dims(op.x), memory.dims(op.out));
    if part != n && fault != Some(Join::Repeats) {
        let name = AllGatherColumns::NAME;
        return Err(LaunchError::parameter(name, "ranks", n / part, "1"));
    }
    let mut out = memory.take(op.out);
    for (out, x) in out
        .chunks_exact_mut(n)
        .zip(memory.get(op.x).chunks_exact(part))
    {
        for (out, x) in out.iter_mut().zip(x.iter().cycle()) {
            *out = match fault {
                Some(Join::Flushes) if x.to_f32().is_subnormal() => round_bf16(0.0),
                _ => *x,
            };
        }
    }
    memory.put(op.out, out);
    Ok(())
}
