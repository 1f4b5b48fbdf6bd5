//! Which slots of a state buffer the sequences of a step read and write.
//!
//! - `seq_rows` `[S + 1]`: the rows of sequence `s` are `seq_rows[s]..seq_rows[s + 1]`; rows outside
//!   of all sequences are inert.
//! - `state_read` `[S]`: the slot that a sequence starts from, `NONE` for zeros: nothing ever needs
//!   clearing, so nothing of an earlier request can be left behind.
//! - `state_write` `[T]`: the slot that holds the state *after* this row, `NONE` for none. One write a
//!   sequence keeps a chunk; one a row lets verification keep any prefix.
//!
//! A slot is written at most once in a step, and a written slot may be read only by its own sequence,
//! which has read it before it writes. So no order between sequences exists, and what a sequence sees
//! does not depend on its company.

use crate::NONE;
use crate::buffer::{Buf, BufferTable};
use crate::dtype::Element;
use crate::launch::{LaunchError, Operand, Traffic, traffic_without};
use alloc::{collections::BTreeMap, format, vec::Vec};
use core::ops::Range;

/// The rows of one sequence and the slot it starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequenceRows {
    /// Rows of the step, in order of position.
    pub rows: Range<usize>,
    /// Slot of the state before the first row; `None` is zeros.
    pub read: Option<usize>,
}

/// Checked slot indices of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateSlots {
    /// One entry a sequence.
    pub sequences: Vec<SequenceRows>,
    /// By row: the slot that gets the state after it.
    pub writes: Vec<Option<usize>>,
}

impl StateSlots {
    /// Checks the index buffers of a step against the number of slots, before anything is written.
    pub fn new(
        op: &'static str,
        seq_rows: &[u32],
        state_read: &[u32],
        state_write: &[u32],
        slots: usize,
    ) -> Result<StateSlots, LaunchError> {
        let sequences = sequences(op, seq_rows, state_read, state_write.len(), slots)?;
        let writes = state_write
            .iter()
            .enumerate()
            .map(|(t, &slot)| {
                checked_slot(op, slot, slots, || format!("state write slot of row {t}"))
            })
            .collect::<Result<Vec<_>, _>>()?;
        let checked = StateSlots { sequences, writes };
        checked.refuse_inert_writes(op)?;
        checked.refuse_shared_slots(op)?;
        Ok(checked)
    }

    fn refuse_inert_writes(&self, op: &'static str) -> Result<(), LaunchError> {
        let live = |t| self.sequences.iter().any(|s| s.rows.contains(&t));
        match (0..self.writes.len()).find(|&t| self.writes[t].is_some() && !live(t)) {
            None => Ok(()),
            Some(t) => Err(LaunchError::step_data(
                op,
                format!("state write slot of row {t}"),
                self.writes[t].map_or(NONE, |slot| slot as u32),
                "NONE, as the row belongs to no sequence",
            )),
        }
    }

    fn refuse_shared_slots(&self, op: &'static str) -> Result<(), LaunchError> {
        let mut writer = BTreeMap::new();
        for (s, sequence) in self.sequences.iter().enumerate() {
            for t in sequence.rows.clone() {
                let Some(slot) = self.writes[t] else { continue };
                if writer.insert(slot, s).is_some() {
                    return Err(LaunchError::step_data(
                        op,
                        format!("state write slot of row {t}"),
                        slot as u32,
                        "a slot that no other row of the step writes",
                    ));
                }
            }
        }
        for (s, sequence) in self.sequences.iter().enumerate() {
            let Some(slot) = sequence.read else { continue };
            if !sequence.rows.is_empty() && writer.get(&slot).is_some_and(|&w| w != s) {
                return Err(LaunchError::step_data(
                    op,
                    format!("state read slot of sequence {s}"),
                    slot as u32,
                    "a slot that no other sequence of the step writes",
                ));
            }
        }
        Ok(())
    }
}

/// Bytes moved by an operation that touches only the named slots of its state: none of them when all
/// rows are inert, one read a sequence and one write a row at most.
pub(super) fn state_traffic<E: Element>(
    operands: Vec<Operand>,
    state: Buf<E>,
    state_read: Buf<u32>,
    state_write: Buf<u32>,
    buffers: &BufferTable,
) -> Traffic {
    let min = traffic_without(operands, &[state.id()], buffers);
    let slots = buffers
        .get(state.id())
        .map_or(0, |d| d.shape.first().map_or(0, |&n| n as u64));
    let slot = slot_bytes(state, buffers);
    let touched = |indices| (buffers.bytes(indices) / 4).min(slots);
    Traffic {
        min,
        max: min + slot * (touched(state_read) + touched(state_write)),
    }
}

/// Bytes of one slot of a state.
pub(super) fn slot_bytes<E: Element>(state: Buf<E>, buffers: &BufferTable) -> u64 {
    let decl = buffers.get(state.id());
    let slots = decl.map_or(0, |d| d.shape.first().map_or(0, |&n| n as u64));
    buffers.bytes(state).checked_div(slots).unwrap_or(0)
}

fn sequences(
    op: &'static str,
    seq_rows: &[u32],
    state_read: &[u32],
    rows: usize,
    slots: usize,
) -> Result<Vec<SequenceRows>, LaunchError> {
    let mut sequences = Vec::with_capacity(state_read.len());
    for (s, (bounds, &slot)) in seq_rows.windows(2).zip(state_read).enumerate() {
        let (start, end) = (bounds[0], bounds[1]);
        if end < start || end as usize > rows {
            let what = format!("end of the rows of sequence {s}");
            let expected = format!("in {start}..={rows}");
            return Err(LaunchError::step_data(op, what, end, expected));
        }
        sequences.push(SequenceRows {
            rows: start as usize..end as usize,
            read: checked_slot(op, slot, slots, || {
                format!("state read slot of sequence {s}")
            })?,
        });
    }
    Ok(sequences)
}

fn checked_slot(
    op: &'static str,
    slot: u32,
    slots: usize,
    what: impl Fn() -> alloc::string::String,
) -> Result<Option<usize>, LaunchError> {
    match slot {
        NONE => Ok(None),
        slot if (slot as usize) < slots => Ok(Some(slot as usize)),
        slot => {
            let expected = format!("below the {slots} slots, or NONE");
            Err(LaunchError::step_data(op, what(), slot, expected))
        }
    }
}
