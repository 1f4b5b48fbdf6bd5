//! A rank's own part of the grouped pairs: those of the experts that it holds.
//!
//! ```text
//! local_offsets[e]     = offsets[first + e] - offsets[first]        e = 0 ..= L, the rank holds experts first .. first + L
//! local_slot_of_row[p] = slot_of_row[offsets[first] + p]            for p < local_offsets[L], else NONE
//! ```
//!
//! u32 throughout, exact. Every rank groups all pairs ([`super::ExpertPrologue`]); since rows stand in the order of their
//! experts, those of a rank are one range, which is moved to the front. The linears of the experts
//! ([`super::GroupedLinearBf16`], [`super::GroupedLinearW8A8`]) then run over it as over a model of `L` experts: slots keep
//! their numbers, so a row still finds its token. [`super::ExchangeSlotRows`] moves the results back.
//!
//! A rank may have no row, or all of them: there is room for every pair of the step.
//!
//! Errors: a `first` from which `L` experts would leave the model's. When it runs: offsets that descend or leave the buffer.
//!
//! Source: vLLM's `expert_map` of expert-parallel ranks, which marks the experts of others instead.

use crate::NONE;
use crate::buffer::{BufferError, BufferTable};
use crate::launch::{LaunchError, Operand, Operation, Traffic, operation};
use crate::memory::Memory;
use alloc::{format, vec::Vec};

operation! {
    /// Offsets and slots of the rows of a rank's experts.
    pub struct LocalExperts {
        /// u32 `[E + 1]`: of all experts
        read offsets: u32,
        /// u32 `[P]`
        read slot_of_row: u32,
        /// u32 `[L + 1]`: of this rank's experts, from 0
        write local_offsets: u32,
        /// u32 `[P]`: `NONE` past the rank's last row
        write local_slot_of_row: u32,
        ;
        /// Number of the rank's first expert
        first: usize,
    }
}

impl Operation for LocalExperts {
    const NAME: &'static str = "local_experts";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        let shapes = || -> Result<[usize; 2], BufferError> {
            let ([all], [own]) = (
                buffers.dims(self.offsets)?,
                buffers.dims(self.local_offsets)?,
            );
            if own < 2 {
                let expected = "[L + 1] with at least one expert";
                return Err(buffers.shape_error(self.local_offsets, expected));
            }
            if own > all {
                let expected = format!("[L + 1], at most the [{all}] of all experts");
                return Err(buffers.shape_error(self.local_offsets, expected));
            }
            let [pairs] = buffers.dims(self.slot_of_row)?;
            buffers.expect(self.local_slot_of_row, &[pairs])?;
            Ok([all, own])
        };
        let [all, own] = shapes().map_err(|e| LaunchError::buffer(Self::NAME, e))?;
        if self.first > all - own {
            let expected = format!(
                "at most {}: the rank holds {} of {} experts",
                all - own,
                own - 1,
                all - 1
            );
            return Err(LaunchError::parameter(
                Self::NAME,
                "first",
                self.first,
                expected,
            ));
        }
        Ok(())
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let mut local_offsets = memory.take(self.local_offsets);
        let mut local_slots = memory.take(self.local_slot_of_row);
        let (offsets, slots) = (memory.get(self.offsets), memory.get(self.slot_of_row));
        let pairs = slots.len();
        let offsets = &offsets[self.first..][..local_offsets.len()];
        let done = local_experts(offsets, slots, &mut local_offsets, &mut local_slots);
        memory.put(self.local_offsets, local_offsets);
        memory.put(self.local_slot_of_row, local_slots);
        done.map_err(|found| {
            let expected = format!("ascending, at most {pairs}");
            LaunchError::step_data(Self::NAME, "an offset", found, expected)
        })
    }

    /// Slots are read where the rank has rows.
    fn traffic(&self, buffers: &BufferTable) -> Traffic {
        let elements = |[n]: [usize; 1]| (n * size_of::<u32>()) as u64;
        let (slots, own) = (
            buffers.dims(self.slot_of_row).map_or(0, elements),
            buffers.dims(self.local_offsets).map_or(0, elements),
        );
        Traffic {
            min: 2 * own + slots,
            max: 2 * own + 2 * slots,
        }
    }
}

/// Moves the rows between the first and the last of `offsets`, those of the rank's experts, to the front. An offset that
/// leads nowhere is the error, and then no expert has a row.
pub fn local_experts(
    offsets: &[u32],
    slot_of_row: &[u32],
    local_offsets: &mut [u32],
    local_slot_of_row: &mut [u32],
) -> Result<(), u32> {
    local_offsets.fill(0);
    local_slot_of_row.fill(NONE);
    if let Some(pair) = offsets.windows(2).find(|pair| pair[1] < pair[0]) {
        return Err(pair[1]);
    }
    let (start, end) = (offsets[0], offsets[offsets.len() - 1]);
    let slots = slot_of_row.get(start as usize..end as usize).ok_or(end)?;
    local_slot_of_row[..slots.len()].copy_from_slice(slots);
    for (local, offset) in local_offsets.iter_mut().zip(offsets) {
        *local = offset - start;
    }
    Ok(())
}
