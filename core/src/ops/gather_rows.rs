//! Picks rows: `out[r] = x[rows[r]]`, zeros where `rows[r]` is `NONE`. Copies bits.
//!
//! A row beyond `x` is refused when it runs.

use crate::NONE;
use crate::buffer::{BufferError, BufferTable};
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::bf16;
use alloc::{format, vec::Vec};

operation! {
    /// Row `rows[r]`; `NONE` gives zeros.
    pub struct GatherRows {
        /// bf16 `[T, H]`
        read x: bf16,
        /// u32 `[R]`
        read rows: u32,
        /// bf16 `[R, H]`
        write out: bf16,
        ;
    }
}

impl Operation for GatherRows {
    const NAME: &'static str = "gather_rows";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        let check = || -> Result<(), BufferError> {
            let [r, width] = buffers.dims(self.out)?;
            let [t, _] = buffers.dims(self.x)?;
            buffers.expect(self.x, &[t, width])?;
            buffers.expect(self.rows, &[r])?;
            Ok(())
        };
        check().map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let [t, width] = memory.dims(self.x);
        let mut out = memory.take(self.out);
        let done = gather_rows(memory.get(self.x), memory.get(self.rows), width, &mut out);
        memory.put(self.out, out);
        done.map_err(|row| LaunchError::step_data(Self::NAME, "a row", row, format!("below {t}")))
    }
}

/// Copies rows; the first row that does not exist is the error.
pub fn gather_rows(x: &[bf16], rows: &[u32], width: usize, out: &mut [bf16]) -> Result<(), u32> {
    for (&row, out) in rows.iter().zip(out.chunks_exact_mut(width)) {
        match x.chunks_exact(width).nth(row as usize) {
            Some(x) => out.copy_from_slice(x),
            None if row == NONE => out.fill(bf16::ZERO),
            None => return Err(row),
        }
    }
    Ok(())
}
