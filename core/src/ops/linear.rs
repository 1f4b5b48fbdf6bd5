//! Linear layers: `y = x W^T`, weights stored `[N, K]` row by row, no bias.
//!
//! ```text
//! LinearBf16          y[m,n] = bf16(lane_sum_k(x[m,k] * w[n,k]))                      f32 products and sum
//! LinearW8A8          y[m,n] = bf16((f32(acc) * scale[m]) * weight_scale[n])
//! LinearW8A8Partial   acc[m,n] = sum_k codes[m,k] * w[n,k]                            i32, exact
//! ```
//!
//! The product of two bf16 is exact in f32 unless it under- or overflows; the sum has the lane order
//! whatever `M` is, so a row's output does not depend on how many rows stand beside it. The integer
//! sum may be taken in any order. A K split exchanges the integer sums and scales once they are
//! complete ([`Dequantize`](super::Dequantize)); a bf16 linear is never split by K, because that
//! would cut a float sum.
//!
//! Errors: `K` above [`MAX_W8A8_K`] for the integer forms, whose sum could leave i32.
//!
//! Source: transformers `nn.Linear`; vLLM `triton_scaled_mm`, whose epilogue has the same order of
//! factors and the same single rounding.

use super::dequantize;
use crate::buffer::{Buf, BufferError, BufferTable};
use crate::config::MAX_W8A8_K;
use crate::dtype::Element;
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::{bf16, lane_dot_bf16, round_bf16};
use crate::work::{Occupancy, Work};
use alloc::{format, vec::Vec};

/// One row through bf16 weights `[N, K]`.
pub fn linear_bf16_row(x: &[bf16], weight: &[bf16], out: &mut [bf16]) {
    for (out, weight) in out.iter_mut().zip(weight.chunks_exact(x.len())) {
        *out = round_bf16(lane_dot_bf16(x, weight));
    }
}

/// The exact sum of s8 products.
pub fn dot_i8(a: &[i8], b: &[i8]) -> i32 {
    a.iter()
        .zip(b)
        .map(|(&a, &b)| i32::from(a) * i32::from(b))
        .sum()
}

/// One row of codes through s8 weights `[N, K]`.
pub fn linear_w8a8_row(
    codes: &[i8],
    scale: f32,
    weight: &[i8],
    weight_scale: &[f32],
    out: &mut [bf16],
) {
    let columns = weight.chunks_exact(codes.len()).zip(weight_scale);
    for (out, (weight, &weight_scale)) in out.iter_mut().zip(columns) {
        *out = dequantize(dot_i8(codes, weight), scale, weight_scale);
    }
}

operation! {
    /// bf16 weights, lane-order f32 sum, one rounding.
    pub struct LinearBf16 {
        /// bf16 `[M, K]`
        read x: bf16,
        /// bf16 `[N, K]`
        read weight: bf16,
        /// bf16 `[M, N]`
        write out: bf16,
        ;
    }
}

impl Operation for LinearBf16 {
    const NAME: &'static str = "linear_bf16";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        check_linear_bf16(self, buffers).map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let mut out = memory.take(self.out);
        let [n, k] = memory.dims(self.weight);
        let (x, weight) = (memory.get(self.x), memory.get(self.weight));
        for (x, out) in x.chunks_exact(k).zip(out.chunks_exact_mut(n)) {
            linear_bf16_row(x, weight, out);
        }
        memory.put(self.out, out);
        Ok(())
    }

    fn multiply_adds(&self, buffers: &BufferTable, _step: &Occupancy) -> Work {
        Work::bf16(multiply_adds(self.x, self.weight, buffers))
    }
}

fn check_linear_bf16(op: &LinearBf16, buffers: &BufferTable) -> Result<(), BufferError> {
    let [n, k] = buffers.dims(op.weight)?;
    if n == 0 || k == 0 {
        return Err(buffers.shape_error(op.weight, "[N, K], neither of them 0"));
    }
    let [rows, _] = buffers.dims(op.x)?;
    buffers.expect(op.x, &[rows, k])?;
    buffers.expect(op.out, &[rows, n])
}

operation! {
    /// s8 weights and codes, exact i32 sum, `(acc * scale) * weight_scale`, one rounding.
    pub struct LinearW8A8 {
        /// i8 `[M, K]`
        read codes: i8,
        /// f32 `[M]`
        read scale: f32,
        /// i8 `[N, K]`
        read weight: i8,
        /// f32 `[N]`
        read weight_scale: f32,
        /// bf16 `[M, N]`
        write out: bf16,
        ;
    }
}

impl Operation for LinearW8A8 {
    const NAME: &'static str = "linear_w8a8";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        check_linear_w8a8(self, buffers).map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let mut out = memory.take(self.out);
        let [n, k] = memory.dims(self.weight);
        let (weight, weight_scale) = (memory.get(self.weight), memory.get(self.weight_scale));
        let rows = memory
            .get(self.codes)
            .chunks_exact(k)
            .zip(memory.get(self.scale));
        for ((codes, &scale), out) in rows.zip(out.chunks_exact_mut(n)) {
            linear_w8a8_row(codes, scale, weight, weight_scale, out);
        }
        memory.put(self.out, out);
        Ok(())
    }

    fn multiply_adds(&self, buffers: &BufferTable, _step: &Occupancy) -> Work {
        Work::int8(multiply_adds(self.codes, self.weight, buffers))
    }
}

fn check_linear_w8a8(op: &LinearW8A8, buffers: &BufferTable) -> Result<(), BufferError> {
    let [rows, n] = check_codes(op.codes, op.weight, buffers)?;
    buffers.expect(op.scale, &[rows])?;
    buffers.expect(op.weight_scale, &[n])?;
    buffers.expect(op.out, &[rows, n])
}

operation! {
    /// The i32 sums of one rank of a K split.
    pub struct LinearW8A8Partial {
        /// i8 `[M, K]`
        read codes: i8,
        /// i8 `[N, K]`
        read weight: i8,
        /// i32 `[M, N]`
        write acc: i32,
        ;
    }
}

impl Operation for LinearW8A8Partial {
    const NAME: &'static str = "linear_w8a8_partial";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        check_codes(self.codes, self.weight, buffers)
            .and_then(|[rows, n]| buffers.expect(self.acc, &[rows, n]))
            .map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let mut acc = memory.take(self.acc);
        let [n, k] = memory.dims(self.weight);
        let (codes, weight) = (memory.get(self.codes), memory.get(self.weight));
        for (codes, acc) in codes.chunks_exact(k).zip(acc.chunks_exact_mut(n)) {
            for (acc, weight) in acc.iter_mut().zip(weight.chunks_exact(k)) {
                *acc = dot_i8(codes, weight);
            }
        }
        memory.put(self.acc, acc);
        Ok(())
    }

    fn multiply_adds(&self, buffers: &BufferTable, _step: &Occupancy) -> Work {
        Work::int8(multiply_adds(self.codes, self.weight, buffers))
    }
}

/// `M * N * K`; inert rows are computed too.
fn multiply_adds<E: Element>(x: Buf<E>, weight: Buf<E>, buffers: &BufferTable) -> u64 {
    let [n, k] = buffers.dims(weight).unwrap_or_default();
    let [rows, _] = buffers.dims(x).unwrap_or_default();
    (rows * n * k) as u64
}

/// Checks codes against s8 weights; returns `[M, N]`.
fn check_codes(
    codes: Buf<i8>,
    weight: Buf<i8>,
    buffers: &BufferTable,
) -> Result<[usize; 2], BufferError> {
    let [n, k] = buffers.dims(weight)?;
    if n == 0 || k == 0 || k > MAX_W8A8_K {
        let expected = format!("[N, K], neither of them 0, K at most {MAX_W8A8_K}");
        return Err(buffers.shape_error(weight, expected));
    }
    let [rows, _] = buffers.dims(codes)?;
    buffers.expect(codes, &[rows, k])?;
    Ok([rows, n])
}
