//! Joins the columns that the ranks computed.
//!
//! ```text
//! out[m] = rank 0's x[m], then rank 1's, ...        N / ranks columns of each
//! ```
//!
//! bf16, copied bit for bit: a linear that is split by output gives the bytes of the whole one, since no float sum is cut.
//!
//! The number of ranks is what the shapes say. As one rank's launch this is a copy when there is one rank, and refused
//! otherwise: no rank has the columns of the others. A lockstep runner or a device's collective does it with
//! [`all_gather_columns`].

use crate::buffer::{BufferError, BufferTable};
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::bf16;
use alloc::{format, vec::Vec};

operation! {
    /// Columns of all ranks in rank order.
    pub struct AllGatherColumns {
        /// bf16 `[M, N / ranks]`
        read x: bf16,
        /// bf16 `[M, N]`
        write out: bf16,
        ;
    }
}

impl Operation for AllGatherColumns {
    const NAME: &'static str = "all_gather_columns";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        let check = || -> Result<(), BufferError> {
            let [rows, n] = buffers.dims(self.out)?;
            let [_, part] = buffers.dims(self.x)?;
            if part == 0 || n % part != 0 {
                return Err(buffers.shape_error(self.x, format!("[M, a divisor of {n}]")));
            }
            buffers.expect(self.x, &[rows, part])
        };
        check().map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let ([_, part], [_, n]) = (memory.dims(self.x), memory.dims(self.out));
        if part != n {
            let expected = "1 where a rank runs alone";
            return Err(LaunchError::parameter(
                Self::NAME,
                "ranks",
                n / part,
                expected,
            ));
        }
        let mut out = memory.take(self.out);
        all_gather_columns(&[memory.get(self.x)], part, &mut out);
        memory.put(self.out, out);
        Ok(())
    }
}

/// Joins the ranks' columns, `part` of each.
pub fn all_gather_columns(ranks: &[&[bf16]], part: usize, out: &mut [bf16]) {
    for (row, out) in out.chunks_exact_mut(part * ranks.len()).enumerate() {
        for (rank, out) in ranks.iter().zip(out.chunks_exact_mut(part)) {
            out.copy_from_slice(&rank[row * part..][..part]);
        }
    }
}
