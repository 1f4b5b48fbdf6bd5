//! Roundings to nearest, ties to even: to bf16 (the upper half of an f32), to integers, from i32.

use super::exp::MAGIC;
use super::is_nan_bits;
pub use half::bf16;

/// Rounds an f32 to bf16: nearest, ties to even; subnormals are kept, overflow gives infinity,
/// every NaN gives a NaN (which one is not part of the contract).
///
/// Written on bits, because that is the form every device runs.
#[inline(always)]
pub fn round_bf16(x: f32) -> bf16 {
    let bits = x.to_bits();
    if bits & 0x7fff_ffff > 0x7f80_0000 {
        return bf16::from_bits(0x7fc0);
    }
    let round = 0x7fff + ((bits >> 16) & 1);
    bf16::from_bits((bits.wrapping_add(round) >> 16) as u16)
}

/// Rounds to the nearest integer, ties to even; the sign of zero is kept.
///
/// Below 2^23 adding and subtracting 2^23 rounds at the unit; from there on every f32 is an
/// integer. NaN stays NaN.
#[inline(always)]
pub fn round_half_even(x: f32) -> f32 {
    const UNIT: f32 = 8_388_608.0;
    let sign = x.to_bits() & 0x8000_0000;
    let a = f32::from_bits(x.to_bits() & 0x7fff_ffff);
    let rounded = f32::from_bits(((a + UNIT) - UNIT).to_bits() | sign);
    if a < UNIT { rounded } else { x }
}

/// [`round_half_even`] to i32, saturating at ±2^22; NaN gives 0.
///
/// The integer is read off the low bits of `x + 1.5 * 2^23`, which is faster than a conversion
/// that saturates at the range of i32, and enough for codes of 8 bits.
#[inline(always)]
pub fn round_half_even_i32(x: f32) -> i32 {
    const LIMIT: f32 = 4_194_304.0;
    let c = if x > LIMIT { LIMIT } else { x };
    let c = if c < -LIMIT { -LIMIT } else { c };
    let code = ((c + MAGIC).to_bits() as i32).wrapping_sub(MAGIC.to_bits() as i32);
    if is_nan_bits(x.to_bits()) { 0 } else { code }
}

/// i32 to f32, nearest, ties to even, in the form for devices whose conversion rounds otherwise
/// above 2^24: both halves convert exactly, the sum is the only rounding.
#[inline(always)]
pub fn i32_to_f32(v: i32) -> f32 {
    let hi = v >> 16;
    let lo = v & 0xffff;
    hi as f32 * 65_536.0 + lo as f32
}
