//! Mutants of what ranks do that hold whole experts: finding their own rows, and exchanging them.

use super::{Mutant, mutant};
use layerlet_core::NONE;
use layerlet_core::launch::{LaunchError, Operation};
use layerlet_core::memory::Memory;
use layerlet_core::numerics::bf16;
use layerlet_core::ops::{ExchangeSlotRows, LocalExperts};

pub const MUTANTS: &[Mutant] = &[
    mutant!(
        "local_experts",
        "keeps the offsets of all experts",
        LocalExperts,
        |op, m, fault| local_experts(op, m, fault.then_some(Own::NotRebased))
    ),
    mutant!(
        "local_experts",
        "takes its slots from the front",
        LocalExperts,
        |op, m, fault| local_experts(op, m, fault.then_some(Own::FromTheFront))
    ),
    mutant!(
        "local_experts",
        "goes on into the next rank's slots",
        LocalExperts,
        |op, m, fault| local_experts(op, m, fault.then_some(Own::GoesOn))
    ),
    mutant!(
        "local_experts",
        "takes the experts from the one after its first",
        LocalExperts,
        |op, m, fault| local_experts(op, m, fault.then_some(Own::OneLater))
    ),
    mutant!(
        "exchange_slot_rows",
        "takes its own rows for those of another rank",
        ExchangeSlotRows,
        |op, m, fault| exchange(op, m, fault.then_some(Exchange::WrongRank))
    ),
    mutant!(
        "exchange_slot_rows",
        "sends what lies past the last row",
        ExchangeSlotRows,
        |op, m, fault| exchange(op, m, fault.then_some(Exchange::Tail))
    ),
    mutant!(
        "exchange_slot_rows",
        "drops the last row",
        ExchangeSlotRows,
        |op, m, fault| exchange(op, m, fault.then_some(Exchange::DropsLast))
    ),
    mutant!(
        "exchange_slot_rows",
        "adds to what is there, which loses the sign of a zero",
        ExchangeSlotRows,
        |op, m, fault| exchange(op, m, fault.then_some(Exchange::Adds))
    ),
];

#[derive(Clone, Copy, PartialEq)]
enum Own {
    NotRebased,
    FromTheFront,
    GoesOn,
    OneLater,
}

fn local_experts(
    op: &LocalExperts,
    memory: &mut Memory<'_>,
    fault: Option<Own>,
) -> Result<(), LaunchError> {
    let mut own_offsets = memory.take(op.local_offsets);
    let mut own_slots = memory.take(op.local_slot_of_row);
    let (offsets, slots) = (memory.get(op.offsets), memory.get(op.slot_of_row));
    let first = match fault {
        Some(Own::OneLater) => op.first + 1,
        _ => op.first,
    };
    let at = |expert: usize| offsets[(first + expert).min(offsets.len() - 1)];
    let count = own_offsets.len() - 1;
    let descends = (0..count).find(|&e| at(e + 1) < at(e));
    let (start, end) = (at(0), at(count));
    for (e, own) in own_offsets.iter_mut().enumerate() {
        *own = match fault {
            Some(Own::NotRebased) => at(e),
            _ => at(e).saturating_sub(start),
        };
    }
    for (row, own) in (0..).zip(&mut own_slots) {
        let from = match fault {
            Some(Own::FromTheFront) => row,
            _ => start + row,
        };
        let mine = fault == Some(Own::GoesOn) || start + row < end;
        *own = match slots.get(from as usize) {
            Some(&slot) if mine => slot,
            _ => NONE,
        };
    }
    memory.put(op.local_offsets, own_offsets);
    memory.put(op.local_slot_of_row, own_slots);
    match descends {
        Some(e) => Err(refusal(LocalExperts::NAME, e)),
        None => Ok(()),
    }
}

fn refusal(op: &'static str, expert: usize) -> LaunchError {
    let expected = "offsets that ascend within the step";
    LaunchError::step_data(op, "an expert's end", expert as u32, expected)
}

#[derive(Clone, Copy, PartialEq)]
enum Exchange {
    WrongRank,
    Tail,
    DropsLast,
    Adds,
}

fn exchange(
    op: &ExchangeSlotRows,
    memory: &mut Memory<'_>,
    fault: Option<Exchange>,
) -> Result<(), LaunchError> {
    if op.ranks != 1 && fault != Some(Exchange::WrongRank) {
        let name = ExchangeSlotRows::NAME;
        return Err(LaunchError::parameter(name, "ranks", op.ranks, "1"));
    }
    let mut out = memory.take(op.out);
    let [pairs, width] = memory.dims(op.x);
    let (x, offsets) = (memory.get(op.x), memory.get(op.offsets));
    let last = offsets.len() - 1;
    let rows = match fault {
        Some(Exchange::Tail) => pairs,
        Some(Exchange::DropsLast) => offsets[last].saturating_sub(1) as usize,
        _ => offsets[last] as usize,
    };
    for (row, out) in out.chunks_exact_mut(width).enumerate() {
        out.fill(bf16::ZERO);
        if row < rows {
            out.copy_from_slice(&x[row * width..][..width]);
        }
        if fault == Some(Exchange::Adds) {
            out.iter_mut()
                .for_each(|y| *y = bf16::from_f32(0.0 + y.to_f32()));
        }
    }
    memory.put(op.out, out);
    match rows > pairs {
        true => Err(refusal(ExchangeSlotRows::NAME, last)),
        false => Ok(()),
    }
}
