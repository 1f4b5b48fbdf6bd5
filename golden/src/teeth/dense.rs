//! Mutants of quantisation and linears, whole or split over ranks.

use super::{Mutant, misread, mutant};
use layerlet_core::launch::{LaunchError, Operation};
use layerlet_core::memory::Memory;
use layerlet_core::numerics::{bf16, lane_dot_bf16, round_bf16};
use layerlet_core::ops::{
    Dequantize, LinearBf16, LinearW8A8, QuantizeRows, dequantize, dot_i8, quantize_row_by,
    row_absmax,
};

pub const MUTANTS: &[Mutant] = &[
    mutant!(
        "quantize_rows",
        "truncates instead of rounding",
        QuantizeRows,
        |op, m, fault| {
            quantize_rows(op, m, fault.then_some(|x: f32, r: f32, _| (x * r).trunc()))
        }
    ),
    mutant!(
        "quantize_rows",
        "rounds ties away from zero",
        QuantizeRows,
        |op, m, fault| {
            quantize_rows(op, m, fault.then_some(|x: f32, r: f32, _| (x * r).round()))
        }
    ),
    mutant!(
        "quantize_rows",
        "divides by the scale",
        QuantizeRows,
        |op, m, fault| {
            quantize_rows(
                op,
                m,
                fault.then_some(|x: f32, _, s: f32| (x / s).round_ties_even()),
            )
        }
    ),
    mutant!(
        "quantize_rows",
        "takes one maximum for the batch",
        QuantizeRows,
        one_maximum
    ),
    mutant!(
        "quantize_rows",
        "knows no floor of the maximum",
        QuantizeRows,
        |op, m, fault| {
            op.run(m)?;
            let [_, width] = m.dims(op.x);
            let (mut scales, x) = (m.take(op.scale), m.get(op.x));
            for (scale, x) in scales.iter_mut().zip(x.chunks_exact(width)) {
                let unfloored = row_absmax(x) / 127.0;
                *scale = if fault && !scale.is_nan() {
                    unfloored
                } else {
                    *scale
                };
            }
            m.put(op.scale, scales);
            Ok(())
        }
    ),
    mutant!(
        "quantize_rows",
        "rounds the scale to bf16",
        QuantizeRows,
        |op, m, fault| {
            op.run(m)?;
            let scales = m.get_mut(op.scale).iter_mut().filter(|_| fault);
            scales.for_each(|scale| *scale = round_bf16(*scale).to_f32());
            Ok(())
        }
    ),
    mutant!(
        "quantize_rows_by",
        "takes the first row's maximum for all",
        QuantizeRowsBy,
        |op, m, fault| { misread(op, m, op.absmax, fault, |maxima| maxima.fill(maxima[0])) }
    ),
    mutant!(
        "row_absmax",
        "compares with the signs",
        RowAbsmax,
        |op, m, fault| {
            misread(op, m, op.x, fault, |x: &mut [bf16]| {
                x.iter_mut()
                    .filter(|x| x.is_sign_negative())
                    .for_each(|x| *x = bf16::ZERO);
            })
        }
    ),
    mutant!(
        "linear_bf16",
        "adds in plain order",
        LinearBf16,
        |op, m, fault| { linear_bf16(op, m, if fault { plain_dot } else { lane_dot_bf16 }) }
    ),
    mutant!(
        "linear_bf16",
        "drops the tail past a multiple of eight",
        LinearBf16,
        |op, m, fault| { linear_bf16(op, m, if fault { short_dot } else { lane_dot_bf16 }) }
    ),
    mutant!(
        "linear_bf16",
        "reads the weights as [K, N]",
        LinearBf16,
        |op, m, fault| {
            let [n, k] = m.dims(op.weight);
            misread(op, m, op.weight, fault, |weight: &mut [bf16]| {
                let stored = weight.to_vec();
                for (i, weight) in weight.iter_mut().enumerate() {
                    *weight = stored[i % k * n + i / k];
                }
            })
        }
    ),
    mutant!(
        "linear_w8a8",
        "scales every output by the first one's scale",
        LinearW8A8,
        |op, m, fault| {
            misread(op, m, op.weight_scale, fault, |scales| {
                scales.fill(scales[0])
            })
        }
    ),
    mutant!(
        "linear_w8a8",
        "multiplies the scales first",
        LinearW8A8,
        |op, m, fault| {
            linear_w8a8(op, m, dot_i8, if fault { scales_first } else { dequantize })
        }
    ),
    mutant!(
        "linear_w8a8",
        "truncates sums above 2^24",
        LinearW8A8,
        |op, m, fault| { linear_w8a8(op, m, dot_i8, if fault { truncated } else { dequantize }) }
    ),
    mutant!(
        "linear_w8a8",
        "saturates pairs of products at 16 bits",
        LinearW8A8,
        |op, m, fault| {
            linear_w8a8(
                op,
                m,
                if fault { saturating_dot } else { dot_i8 },
                dequantize,
            )
        }
    ),
    mutant!(
        "linear_w8a8_partial",
        "sums in f32",
        LinearW8A8Partial,
        |op, m, fault| {
            op.run(m)?;
            if fault {
                let acc = m.get_mut(op.acc).iter_mut();
                acc.for_each(|acc| *acc = *acc as f32 as i32);
            }
            Ok(())
        }
    ),
    mutant!(
        "dequantize",
        "truncates sums above 2^24",
        Dequantize,
        |op, m, fault| { dequantize_all(op, m, if fault { truncated } else { dequantize }) }
    ),
    mutant!(
        "dequantize",
        "multiplies the scales first",
        Dequantize,
        |op, m, fault| { dequantize_all(op, m, if fault { scales_first } else { dequantize }) }
    ),
    mutant!(
        "all_reduce_max",
        "loses NaN",
        AllReduceMax,
        |op, m, fault| {
            misread(op, m, op.x, fault, |x| {
                x.iter_mut().for_each(|x| *x = x.max(0.0));
            })
        }
    ),
    mutant!(
        "all_reduce_sum",
        "sums in f32",
        AllReduceSum,
        |op, m, fault| {
            misread(op, m, op.x, fault, |x: &mut [i32]| {
                x.iter_mut().for_each(|x| *x = *x as f32 as i32);
            })
        }
    ),
    mutant!(
        "all_gather_columns",
        "joins the ranks from the last to the first",
        AllGatherColumns,
        |op, m, fault| {
            let [_, width] = m.dims(op.x);
            misread(op, m, op.x, fault, |x: &mut [bf16]| {
                x.chunks_exact_mut(width).for_each(<[bf16]>::reverse);
            })
        }
    ),
];

/// A code from value, reciprocal and scale.
type Code = fn(f32, f32, f32) -> f32;

fn quantize_rows(
    op: &QuantizeRows,
    m: &mut Memory<'_>,
    code: Option<Code>,
) -> Result<(), LaunchError> {
    let Some(code) = code else { return op.run(m) };
    op.run(m)?;
    let [_, width] = m.dims(op.x);
    let (mut codes, scales) = (m.take(op.codes), m.get(op.scale));
    let rows = m
        .get(op.x)
        .chunks_exact(width)
        .zip(codes.chunks_exact_mut(width));
    for ((x, codes), &scale) in rows.zip(scales) {
        let live = scale.is_finite() && row_absmax(x) >= 1e-10;
        for (code_out, x) in codes.iter_mut().zip(x).filter(|_| live) {
            *code_out = code(x.to_f32(), 1.0 / scale, scale).clamp(-127.0, 127.0) as i8;
        }
    }
    m.put(op.codes, codes);
    Ok(())
}

fn one_maximum(op: &QuantizeRows, m: &mut Memory<'_>, fault: bool) -> Result<(), LaunchError> {
    if !fault {
        return op.run(m);
    }
    let [_, width] = m.dims(op.x);
    let (mut codes, mut scales) = (m.take(op.codes), m.take(op.scale));
    let rows = m.get(op.x).chunks_exact(width);
    let largest = rows
        .clone()
        .map(row_absmax)
        .filter(|a| a.is_finite())
        .fold(0.0, f32::max);
    for ((x, codes), scale) in rows.zip(codes.chunks_exact_mut(width)).zip(&mut scales) {
        *scale = quantize_row_by(x, largest, codes);
    }
    m.put(op.codes, codes);
    m.put(op.scale, scales);
    Ok(())
}

type Dot = fn(&[bf16], &[bf16]) -> f32;

fn plain_dot(a: &[bf16], b: &[bf16]) -> f32 {
    a.iter()
        .zip(b)
        .fold(0.0, |sum, (a, b)| sum + a.to_f32() * b.to_f32())
}

fn short_dot(a: &[bf16], b: &[bf16]) -> f32 {
    let whole = a.len() / 8 * 8;
    lane_dot_bf16(&a[..whole], &b[..whole])
}

fn linear_bf16(op: &LinearBf16, m: &mut Memory<'_>, dot: Dot) -> Result<(), LaunchError> {
    let [_, k] = m.dims(op.x);
    let [_, n] = m.dims(op.out);
    let mut out = m.take(op.out);
    for (x, out) in m.get(op.x).chunks_exact(k).zip(out.chunks_exact_mut(n)) {
        for (out, weight) in out.iter_mut().zip(m.get(op.weight).chunks_exact(k)) {
            *out = round_bf16(dot(x, weight));
        }
    }
    m.put(op.out, out);
    Ok(())
}

type Epilogue = fn(i32, f32, f32) -> bf16;

fn scales_first(acc: i32, scale: f32, weight_scale: f32) -> bf16 {
    round_bf16(acc as f32 * (scale * weight_scale))
}

fn truncated(acc: i32, scale: f32, weight_scale: f32) -> bf16 {
    let magnitude = acc.unsigned_abs();
    let surplus = (32 - magnitude.leading_zeros()).saturating_sub(24);
    let kept = (magnitude >> surplus << surplus) as f32;
    let acc = if acc < 0 { -kept } else { kept };
    round_bf16((acc * scale) * weight_scale)
}

/// Codes shifted to u8 times s8, pairs added in 16 bits, as an instruction of that form does it.
fn saturating_dot(codes: &[i8], weight: &[i8]) -> i32 {
    let pairs = codes.chunks(2).zip(weight.chunks(2));
    let sum_of = |(codes, weight): (&[i8], &[i8])| {
        let products = codes.iter().zip(weight);
        let shifted = products.map(|(&c, &w)| (i32::from(c) + 128) * i32::from(w));
        let pair = shifted.sum::<i32>().clamp(i16::MIN.into(), i16::MAX.into());
        pair - weight.iter().map(|&w| 128 * i32::from(w)).sum::<i32>()
    };
    pairs.map(sum_of).sum()
}

fn linear_w8a8(
    op: &LinearW8A8,
    m: &mut Memory<'_>,
    dot: fn(&[i8], &[i8]) -> i32,
    epilogue: Epilogue,
) -> Result<(), LaunchError> {
    let [_, k] = m.dims(op.codes);
    let [_, n] = m.dims(op.out);
    let mut out = m.take(op.out);
    let rows = m.get(op.codes).chunks_exact(k).zip(m.get(op.scale));
    for ((codes, &scale), out) in rows.zip(out.chunks_exact_mut(n)) {
        let columns = m.get(op.weight).chunks_exact(k).zip(m.get(op.weight_scale));
        for (out, (weight, &weight_scale)) in out.iter_mut().zip(columns) {
            *out = epilogue(dot(codes, weight), scale, weight_scale);
        }
    }
    m.put(op.out, out);
    Ok(())
}

fn dequantize_all(
    op: &Dequantize,
    m: &mut Memory<'_>,
    epilogue: Epilogue,
) -> Result<(), LaunchError> {
    let [_, n] = m.dims(op.acc);
    let mut out = m.take(op.out);
    let rows = m.get(op.acc).chunks_exact(n).zip(m.get(op.scale));
    for ((acc, &scale), out) in rows.zip(out.chunks_exact_mut(n)) {
        let columns = acc.iter().zip(m.get(op.weight_scale));
        for (out, (&acc, &weight_scale)) in out.iter_mut().zip(columns) {
            *out = epilogue(acc, scale, weight_scale);
        }
    }
    m.put(op.out, out);
    Ok(())
}
