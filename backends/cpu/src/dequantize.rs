//! Fast because it is one pass: two products and a rounding an element.

use crate::level::per_level;
use crate::pool::Pool;
use layerlet_core::memory::Memory;
use layerlet_core::numerics::{bf16, round_bf16};
use layerlet_core::ops::Dequantize;

per_level! {
    fn dequantize_row(acc: &[i32], scale: f32, weight_scale: &[f32], out: &mut [bf16]) {
        for ((out, &acc), &weight_scale) in out.iter_mut().zip(acc).zip(weight_scale) {
            *out = round_bf16((acc as f32 * scale) * weight_scale);
        }
    }
}

/// The operation.
pub fn run(op: &Dequantize, pool: &Pool, memory: &mut Memory<'_>) {
    let level = pool.level;
    let mut out = memory.take(op.out);
    let [width] = memory.dims(op.weight_scale);
    let (acc, scale) = (memory.get(op.acc), memory.get(op.scale));
    let weight_scale = memory.get(op.weight_scale);
    pool.rows(2 * width, &mut out, width, |row, out| {
        let acc = &acc[row * width..][..width];
        dequantize_row(level, acc, scale[row], weight_scale, out);
    });
    memory.put(op.out, out);
}
