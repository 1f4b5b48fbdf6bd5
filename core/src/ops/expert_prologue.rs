//! Groups token-expert pairs by expert: a stable counting sort.
//!
//! ```text
//! pair      slot = t * k + rank, of expert ids[slot]
//! offsets   offsets[e] = number of pairs whose expert is below e;  offsets[E] = number of pairs
//! row       row_of_slot[slot] = offsets[e] + number of earlier slots with the same expert e
//! inverse   slot_of_row[row_of_slot[slot]] = slot
//! ```
//!
//! u32 throughout, exact. `NONE` pairs (inert rows) have no row, rows past `offsets[E]` have no slot: both maps say `NONE`
//! there. The order within an expert changes no byte of a later result, but it is fixed, so that every intermediate can be
//! compared. An expert named twice by one token gets two rows.
//!
//! Errors: an id that is no expert is refused when it runs.
//!
//! Source: vLLM's `moe_align_block_size` without the padding to blocks, which is a kernel's own business.

use crate::NONE;
use crate::buffer::{BufferError, BufferTable};
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use alloc::{format, vec::Vec};

operation! {
    /// A stable counting sort of the pairs `slot = t * k + rank` by expert.
    pub struct ExpertPrologue {
        /// u32 `[T, k]`: `NONE` pairs are left out
        read ids: u32,
        /// u32 `[E + 1]`: rows of expert `e` are `offsets[e]..offsets[e + 1]`
        write offsets: u32,
        /// u32 `[P]`: `NONE` past the last row
        write slot_of_row: u32,
        /// u32 `[P]`: the inverse, `NONE` for a left-out pair
        write row_of_slot: u32,
        ;
    }
}

impl Operation for ExpertPrologue {
    const NAME: &'static str = "expert_prologue";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        let check = || -> Result<(), BufferError> {
            let [t, k] = buffers.dims(self.ids)?;
            if t * k >= NONE as usize {
                let expected = format!("[T, k] with fewer than {NONE} pairs");
                return Err(buffers.shape_error(self.ids, expected));
            }
            let [entries] = buffers.dims(self.offsets)?;
            if entries < 2 {
                return Err(buffers.shape_error(self.offsets, "[E + 1] with at least one expert"));
            }
            buffers.expect(self.slot_of_row, &[t * k])?;
            buffers.expect(self.row_of_slot, &[t * k])
        };
        check().map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let mut offsets = memory.take(self.offsets);
        let mut slot_of_row = memory.take(self.slot_of_row);
        let mut row_of_slot = memory.take(self.row_of_slot);
        let ids = memory.get(self.ids);
        let done = expert_prologue(ids, &mut offsets, &mut slot_of_row, &mut row_of_slot);
        let experts = offsets.len() - 1;
        memory.put(self.offsets, offsets);
        memory.put(self.slot_of_row, slot_of_row);
        memory.put(self.row_of_slot, row_of_slot);
        done.map_err(|id| {
            LaunchError::step_data(Self::NAME, "an expert id", id, format!("below {experts}"))
        })
    }
}

/// Sorts the pairs; an id that is no expert is the error, and then nothing is sorted.
pub fn expert_prologue(
    ids: &[u32],
    offsets: &mut [u32],
    slot_of_row: &mut [u32],
    row_of_slot: &mut [u32],
) -> Result<(), u32> {
    let experts = offsets.len() - 1;
    offsets.fill(0);
    slot_of_row.fill(NONE);
    row_of_slot.fill(NONE);
    if let Some(&id) = ids.iter().find(|&&id| id != NONE && id as usize >= experts) {
        return Err(id);
    }
    let mut row = 0u32;
    for (expert, offset) in offsets[..experts].iter_mut().enumerate() {
        *offset = row;
        for slot in (0..ids.len()).filter(|&slot| ids[slot] as usize == expert) {
            slot_of_row[row as usize] = slot as u32;
            row_of_slot[slot] = row;
            row += 1;
        }
    }
    offsets[experts] = row;
    Ok(())
}
