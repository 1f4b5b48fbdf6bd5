//! Picks rows.
//!
//! ```text
//! out[r] = x[rows[r]]        +0 where rows[r] is NONE
//! ```
//!
//! bf16, copied bit for bit, NaN payloads included. A row may be picked any number of times.
//!
//! Errors: a row beyond `x` is refused when it runs.

use crate::NONE;
use crate::buffer::{Buf, BufferError, BufferTable};
use crate::launch::{LaunchError, Operand, Operation, Traffic, operation, traffic_without};
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
            if width == 0 {
                return Err(buffers.shape_error(self.out, "[R, H], H not 0"));
            }
            let [t, _] = buffers.dims(self.x)?;
            buffers.expect(self.x, &[t, width])?;
            buffers.expect(self.rows, &[r])
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

    fn traffic(&self, buffers: &BufferTable) -> Traffic {
        picked_rows_traffic(self.operands(), self.x, self.rows, buffers)
    }
}

/// One row of `x` at least and one for each pick at most (never one twice); everything else once.
pub(super) fn picked_rows_traffic(
    operands: Vec<Operand>,
    x: Buf<bf16>,
    picks: Buf<u32>,
    buffers: &BufferTable,
) -> Traffic {
    let rest = traffic_without(operands, &[x.id()], buffers);
    let ([rows, _], [picks]) = match (buffers.dims(x), buffers.dims(picks)) {
        (Ok(x), Ok(picks)) => (x, picks),
        _ => ([0, 0], [0]),
    };
    let touched = rows.min(picks) as u64;
    let row = buffers.bytes(x) / rows.max(1) as u64;
    Traffic {
        min: rest + row * touched.min(1),
        max: rest + row * touched,
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
