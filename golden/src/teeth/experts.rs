//! Mutants of the experts' linear layers and their activation.

use super::{Mutant, mutant};
use layerlet_core::launch::{LaunchError, Operation};
use layerlet_core::memory::Memory;
use layerlet_core::numerics::{bf16, lane_sum, round_bf16, silu};
use layerlet_core::ops::{GroupedLinearBf16, GroupedLinearW8A8, RowSource, SiluMul};

pub const MUTANTS: &[Mutant] = &[
    mutant!(
        "grouped_linear_bf16",
        "reads an expert's weight as [K, N]",
        GroupedLinearBf16,
        |op, m, fault: bool| grouped_bf16(op, m, fault.then_some(Bf16::Transposed))
    ),
    mutant!(
        "grouped_linear_bf16",
        "sums one product after the other",
        GroupedLinearBf16,
        |op, m, fault: bool| grouped_bf16(op, m, fault.then_some(Bf16::Sequential))
    ),
    mutant!(
        "grouped_linear_bf16",
        "takes the slots for column-major",
        GroupedLinearBf16,
        |op, m, fault: bool| grouped_bf16(op, m, fault.then_some(Bf16::ColumnMajor))
    ),
    mutant!(
        "grouped_linear_bf16",
        "leaves the rows past the last group as they were",
        GroupedLinearBf16,
        |op, m, fault: bool| grouped_bf16(op, m, fault.then_some(Bf16::Stale))
    ),
    mutant!(
        "grouped_linear_w8a8",
        "takes expert 0's scales for all",
        GroupedLinearW8A8,
        |op, m, fault: bool| grouped_w8a8(op, m, fault.then_some(W8A8::FirstScales))
    ),
    mutant!(
        "grouped_linear_w8a8",
        "drops what K leaves beyond 16",
        GroupedLinearW8A8,
        |op, m, fault: bool| grouped_w8a8(op, m, fault.then_some(W8A8::DropsTail))
    ),
    mutant!(
        "grouped_linear_w8a8",
        "multiplies the two scales first",
        GroupedLinearW8A8,
        |op, m, fault: bool| grouped_w8a8(op, m, fault.then_some(W8A8::ScalesFirst))
    ),
    mutant!(
        "silu_mul",
        "rounds once, at the end",
        SiluMul,
        |op, m, fault: bool| silu_mul(op, m, fault.then_some(Silu::RoundsOnce))
    ),
    mutant!(
        "silu_mul",
        "takes gate and up for interleaved",
        SiluMul,
        |op, m, fault: bool| silu_mul(op, m, fault.then_some(Silu::Interleaved))
    ),
];

#[derive(Clone, Copy, PartialEq)]
enum Bf16 {
    Transposed,
    Sequential,
    ColumnMajor,
    Stale,
}

/// Expert and input row of every expert row, `None` past the last group.
fn routes(
    op: &'static str,
    offsets: &[u32],
    slots: &[u32],
    source: RowSource,
    inputs: usize,
) -> Result<Vec<Option<[usize; 2]>>, LaunchError> {
    let refuse = |found| Err(LaunchError::step_data(op, "a route", found, "a row"));
    let end = offsets.last().copied().unwrap_or(0);
    if end as usize > slots.len() {
        return refuse(end);
    }
    let mut routes = vec![None; slots.len()];
    for (p, route) in routes.iter_mut().enumerate().take(end as usize) {
        let expert = offsets[1..]
            .iter()
            .filter(|end| **end as usize <= p)
            .count();
        let row = source.row(p, slots[p]);
        if row >= inputs {
            return refuse(slots[p]);
        }
        *route = Some([expert, row]);
    }
    Ok(routes)
}

fn grouped_bf16(
    op: &GroupedLinearBf16,
    memory: &mut Memory<'_>,
    fault: Option<Bf16>,
) -> Result<(), LaunchError> {
    let ([_, n, k], [inputs, _]) = (memory.dims(op.weight), memory.dims(op.x));
    let (offsets, slots) = (memory.get(op.offsets), memory.get(op.slot_of_row));
    let name = GroupedLinearBf16::NAME;
    let mut routes = routes(name, offsets, slots, op.source, inputs)?;
    if let (Some(Bf16::ColumnMajor), RowSource::Token { .. }) = (fault, op.source) {
        let slots = slots.iter().map(|slot| *slot as usize % inputs);
        let rows = routes.iter_mut().zip(slots);
        rows.for_each(|(route, row)| *route = route.map(|[expert, _]| [expert, row]));
    }
    let mut out = memory.take(op.out);
    let (x, weight) = (memory.get(op.x), memory.get(op.weight));
    for (out, route) in out.chunks_exact_mut(n).zip(routes) {
        let Some([expert, row]) = route else {
            if fault != Some(Bf16::Stale) {
                out.fill(bf16::ZERO);
            }
            continue;
        };
        for (column, out) in out.iter_mut().enumerate() {
            let products = (0..k).map(|i| {
                let at = match fault {
                    Some(Bf16::Transposed) => i * n + column,
                    _ => column * k + i,
                };
                x[row * k + i].to_f32() * weight[expert * n * k + at].to_f32()
            });
            *out = round_bf16(match fault {
                Some(Bf16::Sequential) => products.fold(0.0, |sum, product| sum + product),
                _ => lane_sum(products),
            });
        }
    }
    memory.put(op.out, out);
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
enum W8A8 {
    FirstScales,
    DropsTail,
    ScalesFirst,
}

fn grouped_w8a8(
    op: &GroupedLinearW8A8,
    memory: &mut Memory<'_>,
    fault: Option<W8A8>,
) -> Result<(), LaunchError> {
    let ([_, n, k], [inputs, _]) = (memory.dims(op.weight), memory.dims(op.codes));
    let (offsets, slots) = (memory.get(op.offsets), memory.get(op.slot_of_row));
    let name = GroupedLinearW8A8::NAME;
    let routes = routes(name, offsets, slots, op.source, inputs)?;
    let mut out = memory.take(op.out);
    let (codes, scale) = (memory.get(op.codes), memory.get(op.scale));
    let (weight, weight_scale) = (memory.get(op.weight), memory.get(op.weight_scale));
    let used = match fault {
        Some(W8A8::DropsTail) => k - k % 16,
        _ => k,
    };
    for (out, route) in out.chunks_exact_mut(n).zip(routes) {
        out.fill(bf16::ZERO);
        let Some([expert, row]) = route else { continue };
        for (column, out) in out.iter_mut().enumerate() {
            let weight = &weight[(expert * n + column) * k..][..used];
            let products = codes[row * k..].iter().zip(weight);
            let sum: i32 = products.map(|(c, w)| i32::from(*c) * i32::from(*w)).sum();
            let (row_scale, column_scale) = match fault {
                Some(W8A8::FirstScales) => (scale[row], weight_scale[column]),
                _ => (scale[row], weight_scale[expert * n + column]),
            };
            *out = round_bf16(match fault {
                Some(W8A8::ScalesFirst) => sum as f32 * (row_scale * column_scale),
                _ => sum as f32 * row_scale * column_scale,
            });
        }
    }
    memory.put(op.out, out);
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
enum Silu {
    RoundsOnce,
    Interleaved,
}

fn silu_mul(op: &SiluMul, memory: &mut Memory<'_>, fault: Option<Silu>) -> Result<(), LaunchError> {
    let mut out = memory.take(op.out);
    let [_, width] = memory.dims(op.out);
    let rows = memory.get(op.gate_up).chunks_exact(2 * width);
    for (row, out) in rows.zip(out.chunks_exact_mut(width)) {
        for (i, out) in out.iter_mut().enumerate() {
            let (gate, up) = match fault {
                Some(Silu::Interleaved) => (row[2 * i], row[2 * i + 1]),
                _ => (row[i], row[width + i]),
            };
            let activated = silu(gate.to_f32());
            let activated = match fault {
                Some(Silu::RoundsOnce) => activated,
                _ => round_bf16(activated).to_f32(),
            };
            *out = round_bf16(activated * up.to_f32());
        }
    }
    memory.put(op.out, out);
    Ok(())
}
