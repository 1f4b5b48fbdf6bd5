//! Brings together the expert rows that the ranks computed.
//!
//! ```text
//! row p belongs to expert e:  offsets[e] <= p < offsets[e + 1];    expert e to rank r = e / (E / ranks), whose rows start
//! at s = offsets[r * (E / ranks)]
//!
//! out[p] = rank r's x[p - s]        for p < offsets[E]
//! out[p] = +0                       for p >= offsets[E]
//! ```
//!
//! bf16, copied bit for bit: nothing is summed between ranks. Afterwards every rank has the rows that one device would
//! have, in the places that it would have them in, and [`super::WeightedGather`] adds them in slot order.
//!
//! The ranks hold equally many experts, in ascending order. As one rank's launch this is a copy when there is one rank,
//! and refused otherwise: no rank has the rows of the others. A lockstep runner or a device's collective does it with
//! [`exchange_slot_rows`]; a device sends only the rows that there are.
//!
//! Errors: `ranks` that do not divide the experts. When it runs: offsets that descend or leave the buffer.
//!
//! Source and choice: vLLM's expert-parallel ranks weight and sum their own rows first and add the partial sums of all
//! ranks (an all-reduce), whose last bits depend on the number of ranks. Here the rows themselves travel.

use crate::buffer::{BufferError, BufferTable};
use crate::launch::{LaunchError, Operand, Operation, Traffic, operation, traffic_without};
use crate::memory::Memory;
use crate::numerics::bf16;
use alloc::{format, vec::Vec};

operation! {
    /// Rows of token-expert pairs, each from the rank that holds its expert.
    pub struct ExchangeSlotRows {
        /// bf16 `[P, H]`: this rank's rows, from the front
        read x: bf16,
        /// u32 `[E + 1]`: of all experts
        read offsets: u32,
        /// bf16 `[P, H]`: rows past the last pair are zero
        write out: bf16,
        ;
        ranks: usize,
    }
}

impl Operation for ExchangeSlotRows {
    const NAME: &'static str = "exchange_slot_rows";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        let shapes = || -> Result<usize, BufferError> {
            let [pairs, width] = buffers.dims(self.out)?;
            if width == 0 {
                return Err(buffers.shape_error(self.out, "[P, H], H not 0"));
            }
            buffers.expect(self.x, &[pairs, width])?;
            let [entries] = buffers.dims(self.offsets)?;
            if entries < 2 {
                return Err(buffers.shape_error(self.offsets, "[E + 1] with at least one expert"));
            }
            Ok(entries - 1)
        };
        let experts = shapes().map_err(|e| LaunchError::buffer(Self::NAME, e))?;
        match self.ranks != 0 && experts % self.ranks == 0 {
            true => Ok(()),
            false => {
                let expected = format!("a divisor of the {experts} experts");
                Err(LaunchError::parameter(
                    Self::NAME,
                    "ranks",
                    self.ranks,
                    expected,
                ))
            }
        }
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        if self.ranks != 1 {
            let expected = "1 where a rank runs alone";
            return Err(LaunchError::parameter(
                Self::NAME,
                "ranks",
                self.ranks,
                expected,
            ));
        }
        let mut out = memory.take(self.out);
        let [pairs, width] = memory.dims(self.x);
        let (x, offsets) = (memory.get(self.x), memory.get(self.offsets));
        let done = exchange_slot_rows(&[x], offsets, width, &mut out);
        memory.put(self.out, out);
        done.map_err(|found| exchange_error(found, pairs))
    }

    /// A rank reads the rows that it has: none, or all.
    fn traffic(&self, buffers: &BufferTable) -> Traffic {
        Traffic {
            min: traffic_without(self.operands(), &[self.x.id()], buffers),
            max: traffic_without(self.operands(), &[], buffers),
        }
    }
}

/// Joins the ranks' rows, each `width` wide; an offset that leads nowhere is the error.
pub fn exchange_slot_rows(
    ranks: &[&[bf16]],
    offsets: &[u32],
    width: usize,
    out: &mut [bf16],
) -> Result<(), u32> {
    out.fill(bf16::ZERO);
    let each = (offsets.len() - 1) / ranks.len();
    for (rank, x) in ranks.iter().enumerate() {
        let (start, end) = (offsets[rank * each], offsets[(rank + 1) * each]);
        let count = end.checked_sub(start).ok_or(end)? as usize;
        if end as usize > out.len() / width {
            return Err(end);
        }
        out[start as usize * width..][..count * width].copy_from_slice(&x[..count * width]);
    }
    Ok(())
}

/// What an offset that leads nowhere is refused with.
pub(crate) fn exchange_error(found: u32, pairs: usize) -> LaunchError {
    let expected = format!("ascending, at most {pairs}");
    LaunchError::step_data(ExchangeSlotRows::NAME, "an offset", found, expected)
}
