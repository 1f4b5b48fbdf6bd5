//! Fast because a bf16 becomes an i16 that orders as the logits do (NaN lowest, both zeros equal):
//! the maximum is one of integers, and its first place is found in a second pass.

use crate::level::per_level;
use crate::pool::Pool;
use layerlet_core::NONE;
use layerlet_core::memory::Memory;
use layerlet_core::numerics::bf16;
use layerlet_core::ops::Argmax;

/// The order of NaN: below every number.
pub const NAN_ORDER: i16 = i16::MIN + 1;

/// An integer that orders as argmax does.
#[inline(always)]
pub fn order(x: bf16) -> i16 {
    let magnitude = (x.to_bits() & 0x7fff) as i16;
    let signed = if x.to_bits() >> 15 == 0 {
        magnitude
    } else {
        -magnitude
    };
    if magnitude > 0x7f80 {
        NAN_ORDER
    } else {
        signed
    }
}

per_level! {
    /// Index of the largest logit, the lowest on ties.
    pub fn argmax_row(logits: &[bf16]) -> u32 {
        let best = logits.iter().fold(NAN_ORDER, |best, &x| best.max(order(x)));
        let first = logits.iter().position(|&x| order(x) == best);
        first.unwrap_or(0) as u32
    }
}

/// The operation.
pub fn run(op: &Argmax, pool: &Pool, memory: &mut Memory<'_>) {
    let level = pool.level;
    let mut tokens = memory.take(op.tokens);
    let [_, width] = memory.dims(op.logits);
    let (logits, out_rows) = (memory.get(op.logits), memory.get(op.out_rows));
    pool.rows(width, &mut tokens, 1, |row, token| {
        token[0] = match out_rows[row] {
            NONE => NONE,
            _ => argmax_row(level, &logits[row * width..][..width]),
        };
    });
    memory.put(op.tokens, tokens);
}
