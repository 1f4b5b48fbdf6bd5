//! Fast because it is a counting sort in three passes: count, sum, place.

use layerlet_core::NONE;
use layerlet_core::launch::{LaunchError, Operation};
use layerlet_core::memory::Memory;
use layerlet_core::ops::ExpertPrologue;

/// Pairs grouped by expert, in the order of their slots.
pub struct Routes {
    /// `[E + 1]`
    pub offsets: Vec<u32>,
    /// Slot of each row; as many as there are live pairs.
    pub slot_of_row: Vec<u32>,
    /// Row of each slot, `NONE` for a left-out pair.
    pub row_of_slot: Vec<u32>,
}

impl Routes {
    /// `None` where an id names no expert.
    pub fn new(ids: &[u32], experts: usize) -> Option<Routes> {
        let mut offsets = vec![0u32; experts + 1];
        for &id in ids.iter().filter(|id| **id != NONE) {
            *offsets.get_mut(id as usize + 1)? += 1;
        }
        for e in 0..experts {
            offsets[e + 1] += offsets[e];
        }
        let mut next = offsets.clone();
        let mut slot_of_row = vec![NONE; offsets[experts] as usize];
        let mut row_of_slot = vec![NONE; ids.len()];
        for (slot, &id) in ids.iter().enumerate().filter(|(_, id)| **id != NONE) {
            let row = &mut next[id as usize];
            slot_of_row[*row as usize] = slot as u32;
            row_of_slot[slot] = *row;
            *row += 1;
        }
        Some(Routes {
            offsets,
            slot_of_row,
            row_of_slot,
        })
    }

    /// Writes the operation's outputs.
    pub fn store(&self, op: &ExpertPrologue, memory: &mut Memory<'_>) {
        memory.get_mut(op.offsets).copy_from_slice(&self.offsets);
        memory
            .get_mut(op.row_of_slot)
            .copy_from_slice(&self.row_of_slot);
        let (live, rest) = memory
            .get_mut(op.slot_of_row)
            .split_at_mut(self.slot_of_row.len());
        live.copy_from_slice(&self.slot_of_row);
        rest.fill(NONE);
    }
}

/// The operation.
pub fn run(op: &ExpertPrologue, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
    let experts = memory.get(op.offsets).len() - 1;
    match Routes::new(memory.get(op.ids), experts) {
        None => op.run(memory),
        Some(routes) => {
            routes.store(op, memory);
            Ok(())
        }
    }
}
