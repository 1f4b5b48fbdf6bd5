//! Fast because it is a counting sort in three passes: count, sum, place.

use crate::arena::{Bump, zeros};
use crate::pool::Pool;
use layerlet_core::NONE;
use layerlet_core::launch::{LaunchError, Operation};
use layerlet_core::memory::Memory;
use layerlet_core::ops::ExpertPrologue;

/// Pairs grouped by expert, in the order of their slots.
pub struct Routes<'b> {
    /// `[E + 1]`
    pub offsets: &'b [u32],
    /// Slot of each row; as many as there are live pairs.
    pub slot_of_row: &'b [u32],
    /// Row of each slot, `NONE` for a left-out pair.
    pub row_of_slot: &'b [u32],
}

impl<'b> Routes<'b> {
    /// `None` where an id names no expert.
    pub fn new(arena: &'b Bump, ids: &[u32], experts: usize) -> Option<Routes<'b>> {
        let offsets = zeros::<u32>(arena, experts + 1);
        for &id in ids.iter().filter(|id| **id != NONE) {
            *offsets.get_mut(id as usize + 1)? += 1;
        }
        for e in 0..experts {
            offsets[e + 1] += offsets[e];
        }
        let next = arena.alloc_slice_copy(offsets);
        let slot_of_row = arena.alloc_slice_fill_copy(offsets[experts] as usize, NONE);
        let row_of_slot = arena.alloc_slice_fill_copy(ids.len(), NONE);
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
        memory.get_mut(op.offsets).copy_from_slice(self.offsets);
        memory
            .get_mut(op.row_of_slot)
            .copy_from_slice(self.row_of_slot);
        let (live, rest) = memory
            .get_mut(op.slot_of_row)
            .split_at_mut(self.slot_of_row.len());
        live.copy_from_slice(self.slot_of_row);
        rest.fill(NONE);
    }
}

/// The operation.
pub fn run(op: &ExpertPrologue, pool: &Pool, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
    let experts = memory.get(op.offsets).len() - 1;
    match Routes::new(pool.arena(), memory.get(op.ids), experts) {
        None => op.run(memory),
        Some(routes) => {
            routes.store(op, memory);
            Ok(())
        }
    }
}
