//! Activation codes per row: dynamic, symmetric, s8.
//!
//! ```text
//! absmax = max |x_i|                    as the maximum of the bits without sign
//! s = absmax / 127                      f32, one division
//! r = 1 / s                             f32, one division
//! q_i = clamp(round_half_even(x_i * r), -127, 127)
//! ```
//!
//! | row                          | codes | scale         |
//! |------------------------------|-------|---------------|
//! | absmax < 1e-10               | 0     | `1e-10 / 127` |
//! | holds a NaN or an infinity   | 0     | NaN           |
//!
//! bf16 in; f32 scale and i8 codes out. A row's codes depend on that row alone: no scale is shared
//! over a batch, and a row that cannot be coded leaves its neighbours as they are. Under the floor
//! the codes are 0 by decree, not by the formula: subnormal rows would otherwise meet a reciprocal
//! that a device which flushes subnormals cannot form. NaN in the scale makes every output of the
//! row NaN, so that the fault stays visible.
//!
//! [`RowAbsmax`] and [`QuantizeRowsBy`] are the two halves of [`QuantizeRows`], for ranks that hold
//! a part of each row: maxima of maxima are exact, so the codes are those of the whole row.
//!
//! Source: oneDNN's CPU kernels, whose codes these are. vLLM has three other formulas: the scale
//! rounded to bf16 (dense layers on XPU), half away from zero with `x * (127 / absmax)` (experts on
//! XPU), and `x / s` (CUDA). One formula for all lets a row be coded once and shared by every linear
//! that reads it, and does not depend on the kernel that a layer happens to get.

use crate::buffer::{BufferError, BufferTable};
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::{bf16, round_half_even};
use alloc::vec::Vec;

/// The absmax below which a row counts as zero.
pub const ABSMAX_FLOOR: f32 = 1e-10;

/// The largest code; -128 is not used.
pub const MAX_CODE: f32 = 127.0;

/// Largest magnitude of a row; a NaN is larger than infinity. An empty row has 0.
pub fn row_absmax(x: &[bf16]) -> f32 {
    let bits = x.iter().map(|x| x.to_bits() & 0x7fff).max().unwrap_or(0);
    f32::from_bits(u32::from(bits) << 16)
}

/// Codes of one row for a given absmax; returns the scale.
pub fn quantize_row_by(x: &[bf16], absmax: f32, codes: &mut [i8]) -> f32 {
    if !absmax.is_finite() {
        codes.fill(0);
        return f32::NAN;
    }
    if absmax < ABSMAX_FLOOR {
        codes.fill(0);
        return ABSMAX_FLOOR / MAX_CODE;
    }
    let scale = absmax / MAX_CODE;
    let reciprocal = 1.0 / scale;
    for (code, x) in codes.iter_mut().zip(x) {
        *code = round_half_even(x.to_f32() * reciprocal).clamp(-MAX_CODE, MAX_CODE) as i8;
    }
    scale
}

/// Codes of one row; returns the scale.
pub fn quantize_row(x: &[bf16], codes: &mut [i8]) -> f32 {
    quantize_row_by(x, row_absmax(x), codes)
}

operation! {
    /// Dynamic s8 codes with one scale a row.
    pub struct QuantizeRows {
        /// bf16 `[M, K]`
        read x: bf16,
        /// i8 `[M, K]`
        write codes: i8,
        /// f32 `[M]`
        write scale: f32,
        ;
    }
}

impl Operation for QuantizeRows {
    const NAME: &'static str = "quantize_rows";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        check_quantize_rows(self, buffers).map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let (mut codes, mut scale) = (memory.take(self.codes), memory.take(self.scale));
        let [_, width] = memory.dims(self.x);
        let rows = memory.get(self.x).chunks_exact(width);
        for ((x, codes), scale) in rows.zip(codes.chunks_exact_mut(width)).zip(&mut scale) {
            *scale = quantize_row(x, codes);
        }
        memory.put(self.codes, codes);
        memory.put(self.scale, scale);
        Ok(())
    }
}

fn check_quantize_rows(op: &QuantizeRows, buffers: &BufferTable) -> Result<(), BufferError> {
    let [rows, width] = buffers.dims(op.x)?;
    if width == 0 {
        return Err(buffers.shape_error(op.x, "[M, K], K not 0"));
    }
    buffers.expect(op.codes, &[rows, width])?;
    buffers.expect(op.scale, &[rows])
}

operation! {
    /// Largest magnitude of a row: the part of [`QuantizeRows`] that K-split ranks reduce as a maximum.
    pub struct RowAbsmax {
        /// bf16 `[M, K]`
        read x: bf16,
        /// f32 `[M]`
        write absmax: f32,
        ;
    }
}

impl Operation for RowAbsmax {
    const NAME: &'static str = "row_absmax";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        check_row_absmax(self, buffers).map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let mut absmax = memory.take(self.absmax);
        let [_, width] = memory.dims(self.x);
        for (absmax, x) in absmax
            .iter_mut()
            .zip(memory.get(self.x).chunks_exact(width))
        {
            *absmax = row_absmax(x);
        }
        memory.put(self.absmax, absmax);
        Ok(())
    }
}

fn check_row_absmax(op: &RowAbsmax, buffers: &BufferTable) -> Result<(), BufferError> {
    let [rows, width] = buffers.dims(op.x)?;
    if width == 0 {
        return Err(buffers.shape_error(op.x, "[M, K], K not 0"));
    }
    buffers.expect(op.absmax, &[rows])
}

operation! {
    /// Codes by a given row maximum: the rest of [`QuantizeRows`].
    pub struct QuantizeRowsBy {
        /// bf16 `[M, K]`
        read x: bf16,
        /// f32 `[M]`
        read absmax: f32,
        /// i8 `[M, K]`
        write codes: i8,
        /// f32 `[M]`
        write scale: f32,
        ;
    }
}

impl Operation for QuantizeRowsBy {
    const NAME: &'static str = "quantize_rows_by";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        check_quantize_rows_by(self, buffers).map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let (mut codes, mut scale) = (memory.take(self.codes), memory.take(self.scale));
        let [_, width] = memory.dims(self.x);
        let rows = memory
            .get(self.x)
            .chunks_exact(width)
            .zip(memory.get(self.absmax));
        let outputs = codes.chunks_exact_mut(width).zip(&mut scale);
        for ((x, &absmax), (codes, scale)) in rows.zip(outputs) {
            *scale = quantize_row_by(x, absmax, codes);
        }
        memory.put(self.codes, codes);
        memory.put(self.scale, scale);
        Ok(())
    }
}

fn check_quantize_rows_by(op: &QuantizeRowsBy, buffers: &BufferTable) -> Result<(), BufferError> {
    let [rows, width] = buffers.dims(op.x)?;
    if width == 0 {
        return Err(buffers.shape_error(op.x, "[M, K], K not 0"));
    }
    buffers.expect(op.absmax, &[rows])?;
    buffers.expect(op.codes, &[rows, width])?;
    buffers.expect(op.scale, &[rows])
}
