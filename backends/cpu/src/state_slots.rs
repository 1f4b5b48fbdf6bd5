//! Deals the slots of a state buffer out to the sequences and heads that use them, so that these run
//! on different threads without sharing a byte.

use layerlet_core::ops::StateSlots;
use std::collections::BTreeMap;

/// What one job reads and writes of a state buffer: its part of a few slots.
pub struct SlotParts<'a, T> {
    /// Where the state before the first row lies.
    pub start: Start<'a, T>,
    /// Row of the step, and the part of the slot that gets the state after it.
    pub writes: Vec<(usize, &'a mut [T])>,
}

/// The state of a sequence before its first row.
pub enum Start<'a, T> {
    /// A fresh sequence.
    Zeros,
    /// A slot that nobody writes in this step.
    Slot(&'a [T]),
    /// The slot of this one of the job's own writes.
    Written(usize),
}

/// Who uses a slot.
enum Use {
    /// One row of a sequence writes it.
    Written { sequence: usize, row: usize },
    /// These sequences start from it.
    Read(Vec<usize>),
}

fn uses(slots: &StateSlots) -> BTreeMap<usize, Use> {
    let mut uses = BTreeMap::new();
    for (sequence, own) in slots.sequences.iter().enumerate() {
        for row in own.rows.clone() {
            if let Some(slot) = slots.writes[row] {
                uses.insert(slot, Use::Written { sequence, row });
            }
        }
    }
    for (sequence, own) in slots.sequences.iter().enumerate() {
        if let Some(slot) = own.read.filter(|_| !own.rows.is_empty()) {
            let slot = uses.entry(slot).or_insert(Use::Read(Vec::new()));
            if let Use::Read(sequences) = slot {
                sequences.push(sequence);
            }
        }
    }
    uses
}

/// Cuts every slot in use (`slot_len` elements) into `parts` and deals them out:
/// `[sequence * parts + part]`.
pub fn deal_slots<'a, T>(
    state: &'a mut [T],
    slot_len: usize,
    parts: usize,
    slots: &StateSlots,
) -> Vec<SlotParts<'a, T>> {
    let mut dealt = Vec::new();
    dealt.resize_with(slots.sequences.len() * parts, || SlotParts {
        start: Start::Zeros,
        writes: Vec::new(),
    });
    let part_len = slot_len / parts;
    let mut contents = state.chunks_exact_mut(slot_len);
    let mut next = 0;
    for (slot, slot_use) in uses(slots) {
        let content = contents.nth(slot - next).expect("checked by StateSlots");
        next = slot + 1;
        match slot_use {
            Use::Written { sequence, row } => {
                let in_place = slots.sequences[sequence].read == Some(slot);
                let own = &mut dealt[sequence * parts..][..parts];
                for (dealt, content) in own.iter_mut().zip(content.chunks_exact_mut(part_len)) {
                    if in_place {
                        dealt.start = Start::Written(dealt.writes.len());
                    }
                    dealt.writes.push((row, content));
                }
            }
            Use::Read(sequences) => {
                let content: &'a [T] = content;
                for sequence in sequences {
                    let own = &mut dealt[sequence * parts..][..parts];
                    for (dealt, content) in own.iter_mut().zip(content.chunks_exact(part_len)) {
                        dealt.start = Start::Slot(content);
                    }
                }
            }
        }
    }
    dealt
}

/// Rows that belong to no sequence.
pub fn inert_rows(slots: &StateSlots) -> impl Iterator<Item = usize> {
    let live = |row: &usize| slots.sequences.iter().any(|s| s.rows.contains(row));
    (0..slots.writes.len()).filter(move |row| !live(row))
}
