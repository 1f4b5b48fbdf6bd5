//! Joins the columns that the ranks computed: row `m` is rank 0's columns, then rank 1's, ... Copies bits.
//!
//! One rank alone can run it only when there is one rank; a lockstep runner or a device's collective does the rest
//! with [`all_gather_columns`].

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
            buffers.expect(self.x, &[rows, part])?;
            Ok(())
        };
        check().map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let ([_, part], [_, n]) = (memory.dims(self.x), memory.dims(self.out));
        if part != n {
            return Err(LaunchError::Parameter {
                op: Self::NAME,
                parameter: "ranks",
                found: format!("{}", n / part),
                expected: "1 where a rank runs alone".into(),
            });
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
