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
