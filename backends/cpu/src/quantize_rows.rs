//! Fast because magnitudes of bf16 order like their bits (the maximum is one of i16), and because
//! rounding to an integer is one addition: 1.5 * 2^23 leaves the integer in the low bits.

use crate::level::per_level;
use crate::pool::Pool;
use crate::vector::widen;
use layerlet_core::memory::Memory;
use layerlet_core::numerics::bf16;
use layerlet_core::ops::QuantizeRows;

const MAGIC: f32 = 12_582_912.0;
const INFINITY_BITS: i16 = 0x7f80;
const FLOOR: f32 = 1e-10;

per_level! {
    /// Codes of one row, and its scale.
    pub fn quantize_row(x: &[bf16], codes: &mut [i8]) -> f32 {
        let bits = x
            .iter()
            .fold(0i16, |m, x| m.max((x.to_bits() & 0x7fff) as i16));
        let absmax = widen(bf16::from_bits(bits as u16));
        if bits >= INFINITY_BITS || absmax < FLOOR {
            codes.fill(0);
            return if bits >= INFINITY_BITS {
                f32::NAN
            } else {
                FLOOR / 127.0
            };
        }
        let scale = absmax / 127.0;
        let inverse = 1.0 / scale;
        for (code, &x) in codes.iter_mut().zip(x) {
            let rounded = (widen(x) * inverse + MAGIC)
                .to_bits()
                .wrapping_sub(MAGIC.to_bits()) as i32;
            *code = rounded.clamp(-127, 127) as i8;
        }
        scale
    }
}

/// The operation.
pub fn run(op: &QuantizeRows, pool: &Pool, memory: &mut Memory<'_>) {
    let level = pool.level;
    let (mut codes, mut scale) = (memory.take(op.codes), memory.take(op.scale));
    let [_, k] = memory.dims(op.x);
    let x = memory.get(op.x);
    let work = x.len();
    let block = scale.len().div_ceil(pool.jobs_for(work)).max(1);
    let outputs = codes.chunks_mut(block * k).zip(scale.chunks_mut(block));
    let jobs = pool.list(x.chunks(block * k).zip(outputs));
    pool.each(work, jobs, |(x, (codes, scale))| {
        let rows = x.chunks_exact(k).zip(codes.chunks_exact_mut(k));
        for ((x, codes), scale) in rows.zip(scale.iter_mut()) {
            *scale = quantize_row(level, x, codes);
        }
    });
    memory.put(op.codes, codes);
    memory.put(op.scale, scale);
}
