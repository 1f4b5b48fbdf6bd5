//! Sums and maxima over ranks.
//!
//! ```text
//! AllReduceMax    out[i] = max over ranks of |x[i]|        f32, as the maximum of the bits without sign
//! AllReduceSum    out[i] = Σ over ranks of x[i]            i32, exact
//! ```
//!
//! Both are exact, so neither the number of ranks nor the order of arrival changes a bit. Nothing else is ever reduced over
//! ranks: a float sum would depend on how it was cut.
//!
//! The maximum is that of [`super::RowAbsmax`], whose values have no sign. On the bits a NaN is larger than infinity: a
//! fault that one rank sees is seen by all. The sum is that of [`super::LinearW8A8Partial`]; one that leaves i32 is an
//! error, which the bound on `K` keeps from happening ([`crate::config::MAX_W8A8_K`] holds for the whole row).
//!
//! As one rank's launch each reduces over that rank alone. A lockstep runner or a device's collective does the rest with
//! [`all_reduce_max`] and [`all_reduce_sum`].

use crate::buffer::{BufferError, BufferTable};
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use alloc::vec::Vec;

operation! {
    /// Largest magnitude over ranks, NaN above all.
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
            buffers.expect(self.x, &[rows])
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
            buffers.expect(self.x, &[rows, columns])
        };
        check().map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let mut out = memory.take(self.out);
        out.copy_from_slice(memory.get(self.x));
        memory.put(self.out, out);
        Ok(())
    }
}

/// Largest magnitude of each element over ranks, taken on the bits: a NaN is above everything.
pub fn all_reduce_max(ranks: &[&[f32]], out: &mut [f32]) {
    for (i, out) in out.iter_mut().enumerate() {
        let bits = ranks.iter().map(|x| x[i].to_bits() & 0x7fff_ffff).max();
        *out = f32::from_bits(bits.unwrap_or(0));
    }
}

/// Sum of each element over ranks; one that leaves i32 is the error.
pub fn all_reduce_sum(ranks: &[&[i32]], out: &mut [i32]) -> Result<(), i64> {
    for (i, out) in out.iter_mut().enumerate() {
        let sum: i64 = ranks.iter().map(|x| i64::from(x[i])).sum();
        *out = i32::try_from(sum).map_err(|_| sum)?;
    }
    Ok(())
}
