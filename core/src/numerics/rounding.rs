//! bf16: the upper half of an f32, rounded to nearest, ties to even.

pub use half::bf16;

/// Rounds an f32 to bf16: nearest, ties to even; subnormals are kept, overflow gives infinity,
/// every NaN gives a NaN (which one is not part of the contract).
///
/// Written on bits, because that is the form every device runs.
#[inline]
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
#[inline]
pub fn round_half_even(x: f32) -> f32 {
    const UNIT: f32 = 8_388_608.0;
    let sign = x.to_bits() & 0x8000_0000;
    let a = f32::from_bits(x.to_bits() & 0x7fff_ffff);
    let rounded = f32::from_bits(((a + UNIT) - UNIT).to_bits() | sign);
    if a < UNIT { rounded } else { x }
}

/// [`round_half_even`] as an i32: saturates beyond the range of i32, NaN gives 0.
#[inline]
pub fn round_half_even_i32(x: f32) -> i32 {
    round_half_even(x) as i32
}

/// i32 to f32, nearest, ties to even, in the form for devices whose conversion rounds otherwise
/// above 2^24: both halves convert exactly, the sum is the only rounding.
#[inline]
pub fn i32_to_f32(v: i32) -> f32 {
    let hi = v >> 16;
    let lo = v & 0xffff;
    hi as f32 * 65_536.0 + lo as f32
}
