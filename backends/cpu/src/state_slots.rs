//! Deals the slots of a state buffer out to the sequences and heads that use them, so that these run
//! on different threads without sharing a byte.

use crate::arena::{Bump, list};
use layerlet_core::NONE;
use layerlet_core::ops::SequenceRows;

/// The slots of a step, checked by the rules of [`layerlet_core::ops::StateSlots`].
#[derive(Clone, Copy)]
pub struct Slots<'b> {
    /// One entry a sequence.
    pub sequences: &'b [SequenceRows],
    /// By row: the slot that gets the state after it, `NONE` for none.
    pub writes: &'b [u32],
    /// Who uses which slot, by slot; the one that writes it comes first.
    uses: &'b [Use],
}

/// A sequence that writes a slot (by which row), or starts from it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Use {
    slot: u32,
    /// Written before read in the order of the derive.
    kind: Kind,
    sequence: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Written { row: usize },
    Read,
}

impl<'b> Slots<'b> {
    /// `None` where the definition refuses the step.
    pub fn new(
        arena: &'b Bump,
        seq_rows: &[u32],
        state_read: &[u32],
        state_write: &'b [u32],
        slots: usize,
    ) -> Option<Slots<'b>> {
        let rows = state_write.len();
        let in_range = |&slot: &u32| slot == NONE || (slot as usize) < slots;
        let ordered = seq_rows.is_sorted() && seq_rows.iter().all(|&end| end as usize <= rows);
        if !(ordered && state_read.iter().chain(state_write).all(in_range)) {
            return None;
        }
        let bounds = seq_rows.windows(2).zip(state_read);
        let sequences = list(
            arena,
            bounds.map(|(bounds, &slot)| SequenceRows {
                rows: bounds[0] as usize..bounds[1] as usize,
                read: (slot != NONE).then_some(slot as usize),
            }),
        );
        let uses = list(arena, uses(sequences, state_write));
        uses.sort_unstable();
        let of_sequences = uses.iter().filter(|u| u.kind != Kind::Read).count();
        let writes = state_write.iter().filter(|&&slot| slot != NONE).count();
        let foreign = |pair: &[Use]| {
            let both_write = pair[1].kind != Kind::Read;
            pair[0].slot == pair[1].slot
                && pair[0].kind != Kind::Read
                && (both_write || pair[0].sequence != pair[1].sequence)
        };
        // After a write come its readers in order of their sequences: the first and the last tell.
        let shared = uses.chunk_by(|a, b| a.slot == b.slot).any(|same| {
            same.len() > 1 && (foreign(&same[..2]) || foreign(&[same[0], same[same.len() - 1]]))
        });
        (of_sequences == writes && !shared).then_some(Slots {
            sequences,
            writes: state_write,
            uses,
        })
    }

    /// Rows of all sequences.
    pub fn live(&self) -> usize {
        self.sequences.iter().map(|s| s.rows.len()).sum()
    }

    /// Rows of the longest sequence.
    pub fn longest(&self) -> usize {
        self.sequences
            .iter()
            .map(|s| s.rows.len())
            .max()
            .unwrap_or(0)
    }

    /// Rows that belong to no sequence.
    pub fn inert_rows(&self) -> impl Iterator<Item = usize> {
        let live = |row: &usize| self.sequences.iter().any(|s| s.rows.contains(row));
        (0..self.writes.len()).filter(move |row| !live(row))
    }
}

fn uses(sequences: &[SequenceRows], writes: &[u32]) -> impl Iterator<Item = Use> {
    sequences
        .iter()
        .enumerate()
        .flat_map(move |(sequence, own)| {
            let written = own.rows.clone().filter(|&row| writes[row] != NONE);
            let written = written.map(move |row| Use {
                slot: writes[row],
                kind: Kind::Written { row },
                sequence,
            });
            let read = own.read.filter(|_| !own.rows.is_empty());
            written.chain(read.map(|slot| Use {
                slot: slot as u32,
                kind: Kind::Read,
                sequence,
            }))
        })
}

/// What one job reads and writes of a state buffer: its part of a few slots.
pub struct SlotParts<'a, 'b, T> {
    /// Where the state before the first row lies.
    pub start: Start<'a, T>,
    /// Row of the step, and the part of the slot that gets the state after it.
    pub writes: &'b mut [(usize, &'a mut [T])],
}

impl<T> Default for SlotParts<'_, '_, T> {
    fn default() -> Self {
        SlotParts {
            start: Start::Zeros,
            writes: &mut [],
        }
    }
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

/// Cuts every slot in use (`slot_len` elements) into `parts` and deals them out:
/// `[sequence * parts + part]`.
pub fn deal_slots<'a, 'b, T>(
    arena: &'b Bump,
    state: &'a mut [T],
    slot_len: usize,
    parts: usize,
    slots: &Slots<'_>,
) -> &'b mut [SlotParts<'a, 'b, T>]
where
    'a: 'b,
{
    let nobody = |sequence: usize| {
        let rows = slots.sequences[sequence].rows.clone();
        let writes = slots.writes[rows].iter().filter(|&&slot| slot != NONE);
        SlotParts {
            start: Start::Zeros,
            writes: list(arena, writes.map(|_| (0, Default::default()))),
        }
    };
    let count = slots.sequences.len() * parts;
    let dealt = list(arena, (0..count).map(|i| nobody(i / parts)));
    let filled = list(arena, (0..slots.sequences.len()).map(|_| 0));
    let part_len = slot_len / parts;
    let mut contents = state.chunks_exact_mut(slot_len);
    let mut next = 0;
    for same in slots.uses.chunk_by(|a, b| a.slot == b.slot) {
        let slot = same[0].slot as usize;
        let content = contents.nth(slot - next).expect("a slot in range");
        next = slot + 1;
        match same[0] {
            Use {
                kind: Kind::Written { row },
                sequence,
                ..
            } => {
                let in_place = slots.sequences[sequence].read == Some(slot);
                let own = &mut dealt[sequence * parts..][..parts];
                for (dealt, content) in own.iter_mut().zip(content.chunks_exact_mut(part_len)) {
                    if in_place {
                        dealt.start = Start::Written(filled[sequence]);
                    }
                    dealt.writes[filled[sequence]] = (row, content);
                }
                filled[sequence] += 1;
            }
            Use {
                kind: Kind::Read, ..
            } => {
                let content: &'a [T] = content;
                for reader in same {
                    let own = &mut dealt[reader.sequence * parts..][..parts];
                    for (dealt, content) in own.iter_mut().zip(content.chunks_exact(part_len)) {
                        dealt.start = Start::Slot(content);
                    }
                }
            }
        }
    }
    dealt
}
