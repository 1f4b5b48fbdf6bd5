//! e^x from multiplications, additions and bit operations.

use super::{NAN, is_nan_bits};

/// log2(e), rounded to nearest.
const LOG2_E: f32 = f32::from_bits(0x3fb8_aa3b);

/// ln 2 in two parts. The upper one has 15 significant bits, so that its product with an exponent
/// of 8 bits is exact; the lower one is the rest, rounded to nearest.
pub(super) const LN2_HI: f32 = f32::from_bits(0x3f31_7200);
pub(super) const LN2_LO: f32 = f32::from_bits(0x35bf_be8e);

/// 1.5 * 2^23: adding it leaves the nearest integer in the low bits of the sum.
pub(super) const MAGIC: f32 = 12_582_912.0;

/// The least f32 above ln(2^-126): below it the result is subnormal.
const NORMAL_FROM: f32 = f32::from_bits(0xc2ae_ac4f);

/// c in e^r = 1 + r + r^2/2 + r^3 c(r) for |r| <= ln(2)/2, lowest power first.
///
/// Minimax for the error of e^r in units of its last place, by Remez exchange in 200-bit
/// arithmetic: each coefficient in turn is rounded to f32 and the remaining ones are fitted again.
/// What is left is 2^-8 of a last place.
pub(super) const COEFFICIENTS: [f32; 5] = [
    f32::from_bits(0x3e2a_aaa2),
    f32::from_bits(0x3d2a_aa72),
    f32::from_bits(0x3c08_9571),
    f32::from_bits(0x3ab6_a80e),
    f32::from_bits(0x393e_6227),
];

/// e^x.
///
/// `2^n e^r` with `n = round(x log2(e))`, `r = x - n ln(2)` in two words. Monotone; the largest
/// error over all inputs is 0.583 units in the last place, subnormal results included (they are
/// rounded once).
///
/// From 88.723 upwards +inf, below -103.972 +0, NaN gives 0x7fc00000.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    exp_with(x, &COEFFICIENTS)
}

/// [`exp`] with the polynomial as a parameter, so that a test can plant a wrong one.
#[inline(always)]
pub(super) fn exp_with(x: f32, c: &[f32; 5]) -> f32 {
    // Beyond these bounds the result is infinity or 0 anyway; within them n is in [-150, 128].
    let x1 = if x > 89.0 { 89.0 } else { x };
    let x1 = if x1 < -104.0 { -104.0 } else { x1 };

    let shifted = x1 * LOG2_E + MAGIC;
    let n = shifted - MAGIC;
    let ni = (shifted.to_bits() as i32).wrapping_sub(MAGIC.to_bits() as i32);

    // x - n LN2_HI is exact; r + r_lo then loses only the rounding of n LN2_LO.
    let a = x1 - n * LN2_HI;
    let b = n * LN2_LO;
    let r = a - b;
    let r_lo = (a - r) - b;

    let p = c[3] + r * c[4];
    let p = c[2] + r * p;
    let p = c[1] + r * p;
    let p = c[0] + r * p;

    // 1 + r exactly as hi + lo. The smallest terms are added first, so that the last addition is
    // nearly the only rounding that counts.
    let hi = 1.0 + r;
    let lo = r - (hi - 1.0);
    let sq = r * r;
    let rest = 0.5 * sq + (lo + (r_lo * hi + (r * sq) * p));

    // A subnormal result keeps fewer bits than hi + rest would. Summing on top of `base`, whose
    // last place becomes 2^-149 once scaled, lets the one rounding happen there.
    let base = if x1 < NORMAL_FROM {
        f32::from_bits((1i32.wrapping_sub(ni) << 23) as u32)
    } else {
        0.0
    };
    let top = base + hi;
    let y = (top + ((hi - (top - base)) + rest)) - base;

    // 2^n in two factors, because 2^128 and 2^-150 are no f32.
    let n1 = ni >> 1;
    let n2 = ni.wrapping_sub(n1);
    let s1 = f32::from_bits((n1.wrapping_add(127) << 23) as u32);
    let s2 = f32::from_bits((n2.wrapping_add(127) << 23) as u32);
    let y = y * s1 * s2;

    if is_nan_bits(x.to_bits()) { NAN } else { y }
}
