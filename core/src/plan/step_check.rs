//! What the host refuses before a step reaches a device: ids out of range, pages and slots that two
//! sequences share, rows that are not there. Every refusal names the sequence and what was expected.

use super::layout::ModelLayout;
use super::step::{SequenceStep, StepError, StepShape};
use alloc::{format, string::String, vec::Vec};

pub(super) fn check_counts(
    shape: &StepShape,
    sequences: &[SequenceStep<'_>],
) -> Result<(), StepError> {
    let tokens = sequences.iter().map(|s| s.tokens.len()).sum();
    let outputs = sequences.iter().map(|s| s.outputs.len()).sum();
    let counts = [
        ("sequences", sequences.len(), shape.sequences),
        ("rows", tokens, shape.tokens),
        ("outputs", outputs, shape.outputs),
    ];
    match counts.into_iter().find(|(_, found, most)| found > most) {
        Some((what, found, most)) => Err(StepError::TooMany { what, found, most }),
        None => Ok(()),
    }
}

/// Rows, positions and pages of one sequence.
pub(super) fn check_sequence(
    layout: &ModelLayout,
    shape: &StepShape,
    sequence: usize,
    s: &SequenceStep<'_>,
) -> Result<(), StepError> {
    let refuse = |what, found, expected| Err(refusal(sequence, what, found, expected));
    let (vocab, capacity) = (layout.config().vocab, layout.capacity());
    if s.tokens.is_empty() {
        return refuse("its number of rows".into(), 0, "at least 1".into());
    }
    let outside = |(_, id): &(usize, &u32)| **id as usize >= vocab;
    if let Some((row, &id)) = s.tokens.iter().enumerate().find(outside) {
        let expected = format!("below the vocabulary's {vocab}");
        return refuse(format!("the token id of row {row}"), id.into(), expected);
    }
    let end = u64::from(s.start) + s.tokens.len() as u64;
    if end > capacity.max_positions as u64 {
        let expected = format!("below {}", capacity.max_positions);
        return refuse("its last position".into(), end - 1, expected);
    }
    let needed = end.div_ceil(capacity.page_size as u64);
    if (s.pages.len() as u64) < needed || s.pages.len() > shape.pages_per_sequence {
        let expected = format!("{needed} to {}", shape.pages_per_sequence);
        return refuse("its number of pages".into(), s.pages.len() as u64, expected);
    }
    if let Some(&page) = s.pages.iter().find(|p| **p as usize >= capacity.kv_pages) {
        return refuse(
            "a page".into(),
            page.into(),
            format!("below {}", capacity.kv_pages),
        );
    }
    check_rows(sequence, "an output row", s.outputs, s.tokens.len())
}

/// Slots of conv and recurrent state of one sequence.
pub(super) fn check_state(
    layout: &ModelLayout,
    sequence: usize,
    s: &SequenceStep<'_>,
) -> Result<(), StepError> {
    let slots = layout.capacity().state_slots;
    let written = s.state_writes.iter().map(|(_, slot)| slot);
    if let Some(&slot) = s
        .state_read
        .iter()
        .chain(written)
        .find(|slot| **slot as usize >= slots)
    {
        let expected = format!("below {slots}");
        return Err(refusal(
            sequence,
            "a state slot".into(),
            slot.into(),
            expected,
        ));
    }
    if s.state_read.is_none() != (s.start == 0) {
        let expected = "0 with no slot to read (a fresh sequence), above 0 with one";
        let what = "its first position".into();
        return Err(refusal(sequence, what, s.start.into(), expected.into()));
    }
    let rows: Vec<usize> = s.state_writes.iter().map(|(row, _)| *row).collect();
    check_rows(sequence, "a row that writes state", &rows, s.tokens.len())
}

fn check_rows(sequence: usize, what: &str, rows: &[usize], count: usize) -> Result<(), StepError> {
    if let Some(&row) = rows.iter().find(|row| **row >= count) {
        return Err(refusal(
            sequence,
            what.into(),
            row as u64,
            format!("below its {count} rows"),
        ));
    }
    match rows.windows(2).find(|w| w[0] >= w[1]) {
        Some(w) => {
            let expected = format!("above {}, the one before it", w[0]);
            Err(refusal(sequence, what.into(), w[1] as u64, expected))
        }
        None => Ok(()),
    }
}

fn refusal(sequence: usize, what: String, found: u64, expected: String) -> StepError {
    StepError::Sequence {
        sequence,
        what,
        found,
        expected,
    }
}

/// A sequence's use of a slot or page in a step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Use {
    index: u32,
    sequence: usize,
    write: bool,
}

/// No page and no slot may be written twice, or written for one sequence and read by another. A step
/// may write `ahead` positions past its rows.
pub(super) fn check_owners(
    layout: &ModelLayout,
    sequences: &[SequenceStep<'_>],
    ahead: usize,
) -> Result<(), StepError> {
    let (mut slots, mut pages) = (Vec::new(), Vec::new());
    let page_size = layout.capacity().page_size;
    for (sequence, s) in sequences.iter().enumerate() {
        let used = |index: u32, write| Use {
            index,
            sequence,
            write,
        };
        slots.extend(s.state_read.map(|slot| used(slot, false)));
        slots.extend(s.state_writes.iter().map(|(_, slot)| used(*slot, true)));
        let end = s.start as usize + s.tokens.len() + ahead;
        let first_written = s.start as usize / page_size;
        let reached = s.pages.iter().take(end.div_ceil(page_size)).enumerate();
        pages.extend(reached.map(|(n, page)| used(*page, n >= first_written)));
    }
    check_uses("state slot", true, slots)?;
    check_uses("page", false, pages)
}

/// `in_place`: a sequence may write what it has read itself.
fn check_uses(what: &'static str, in_place: bool, mut uses: Vec<Use>) -> Result<(), StepError> {
    uses.sort_unstable();
    for same in uses.chunk_by(|a, b| a.index == b.index) {
        let written = same.iter().filter(|u| u.write).count();
        let (first, last) = (same[0].sequence, same[same.len() - 1].sequence);
        let alone = in_place && first == last;
        if written > 1 || written == 1 && same.len() > 1 && !alone {
            return Err(StepError::Shared {
                what,
                index: same[0].index,
                first,
                second: last,
            });
        }
    }
    Ok(())
}
