//! Sums and maxima over ranks: both exact, so the number of ranks and the order of arrival change nothing.
//!
//! As one rank's launch each is the identity of a single rank; a lockstep runner or a device's collective does the rest
//! with the functions on slices.

use crate::buffer::{BufferError, BufferTable};
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use alloc::{format, vec::Vec};

operation! {
    /// Maximum over ranks, NaN above all.
    pub struct AllReduceMax {
        /// f32 `[M]`
        read x: f32,
        /// f32 `[M]`
        write out: f32,
        ;
    }
}

impl Operation for AllReduceMax {
    const NAME: &'static str = "all_reduce_max";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        let check = || -> Result<(), BufferError> {
            let [rows] = buffers.dims(self.out)?;
            buffers.expect(self.x, &[rows])?;
            Ok(())
        };
        check().map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let mut out = memory.take(self.out);
        all_reduce_max(&[memory.get(self.x)], &mut out);
        memory.put(self.out, out);
        Ok(())
    }
}

operation! {
    /// Exact i32 sum over ranks.
    pub struct AllReduceSum {
        /// i32 `[M, N]`
        read x: i32,
        /// i32 `[M, N]`
        write out: i32,
        ;
    }
}

impl Operation for AllReduceSum {
    const NAME: &'static str = "all_reduce_sum";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        let check = || -> Result<(), BufferError> {
            let [rows, columns] = buffers.dims(self.out)?;
            buffers.expect(self.x, &[rows, columns])?;
            Ok(())
        };
        check().map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let mut out = memory.take(self.out);
        let done = all_reduce_sum(&[memory.get(self.x)], &mut out);
        memory.put(self.out, out);
        done.map_err(|sum| LaunchError::Parameter {
            op: Self::NAME,
            parameter: "a sum",
            found: format!("{sum}"),
            expected: "within i32".into(),
        })
    }
}

/// Maximum of magnitudes over ranks, taken on the bits: a NaN is above everything.
pub fn all_reduce_max(ranks: &[&[f32]], out: &mut [f32]) {
    for (i, out) in out.iter_mut().enumerate() {
        let bits = ranks.iter().map(|x| x[i].to_bits() & 0x7fff_ffff).max();
        *out = f32::from_bits(bits.unwrap_or(0));
    }
}

/// Sum over ranks; one that leaves i32 is the error.
pub fn all_reduce_sum(ranks: &[&[i32]], out: &mut [i32]) -> Result<(), i64> {
    for (i, out) in out.iter_mut().enumerate() {
        let sum: i64 = ranks.iter().map(|x| i64::from(x[i])).sum();
        *out = i32::try_from(sum).map_err(|_| sum)?;
    }
    Ok(())
}
