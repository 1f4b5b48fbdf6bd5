//! e^x from multiplications, additions and bit operations.

use super::is_nan_bits;

/// log2(e), rounded to nearest.
const LOG2_E: f32 = f32::from_bits(0x3fb8_aa3b);
/// ln 2 in two parts. The upper one has 15 significant bits, so that its product with any exponent
/// of at most 8 bits is exact; the lower one is ln 2 minus the upper one, rounded to nearest.
const LN2_HI: f32 = f32::from_bits(0x3f31_7200);
const LN2_LO: f32 = f32::from_bits(0x35bf_be8e);
/// 1.5 * 2^23: adding it leaves the nearest integer in the low bits of the sum.
const MAGIC: f32 = 12_582_912.0;

/// Where the result becomes subnormal: the least f32 above ln(2^-126).
const SUBNORMAL_BELOW: f32 = f32::from_bits(0xc2ae_ac4f);

/// Coefficients of q in e^r = 1 + r + r^2 q(r) for |r| <= ln(2)/2: minimax for the absolute error
/// of e^r in units of its last place (Remez exchange in 200-bit arithmetic; each coefficient is
/// rounded to f32 in turn and the remaining ones are fitted again).
const Q: [f32; 6] = [
    0.5,
    f32::from_bits(0x3e2a_aaa2),
    f32::from_bits(0x3d2a_aa72),
    f32::from_bits(0x3c08_9571),
    f32::from_bits(0x3ab6_a80e),
    f32::from_bits(0x393e_6227),
];

/// e^x: `2^n * e^r` with `n = round(x * log2(e))` and `r = x - n ln(2)` in two words.
///
/// e^-inf and everything below -103.97 give +0, everything above 88.72 gives +inf, NaN gives
/// 0x7fc00000. Subnormal results are rounded once.
#[inline]
pub fn exp(x: f32) -> f32 {
    // Bounds beyond which the result is 0 or infinity anyway; they keep n in [-150, 128].
    let c = if x > 89.0 { 89.0 } else { x };
    let c = if c < -104.0 { -104.0 } else { c };

    let shifted = c * LOG2_E + MAGIC;
    let n = shifted - MAGIC;
    let ni = (shifted.to_bits() as i32).wrapping_sub(MAGIC.to_bits() as i32);

    let a = c - n * LN2_HI;
    let b = n * LN2_LO;
    let r = a - b;
    let r_lo = (a - r) - b;

    let q = Q[4] + r * Q[5];
    let q = Q[3] + r * q;
    let q = Q[2] + r * q;
    let q = Q[1] + r * q;
    let q = Q[0] + r * q;

    // 1 + r exactly as hi + lo: what is added to hi afterwards is small, so that the last addition
    // is the only rounding that counts.
    let hi = 1.0 + r;
    let lo = (r - (hi - 1.0)) + (r_lo + (r * r) * q);

    // A subnormal result keeps fewer bits than hi + lo would. Summing on top of `base`, whose last
    // place is 2^-149 after scaling, makes the one rounding happen there.
    let base_bits = ((1 - ni) << 23) as u32;
    let base = if c < SUBNORMAL_BELOW {
        f32::from_bits(base_bits)
    } else {
        0.0
    };
    let top = base + hi;
    let y = (top + ((hi - (top - base)) + lo)) - base;

    // 2^n in two factors: 2^128 and 2^-150 are out of range in one.
    let n1 = ni >> 1;
    let n2 = ni.wrapping_sub(n1);
    let s1 = f32::from_bits((n1.wrapping_add(127) << 23) as u32);
    let s2 = f32::from_bits((n2.wrapping_add(127) << 23) as u32);
    let result = y * s1 * s2;
    if is_nan_bits(x.to_bits()) {
        super::NAN
    } else {
        result
    }
}
