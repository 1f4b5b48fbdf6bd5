//! ln(1 + x) from multiplications, additions and bit operations.

use super::exp::{LN2_HI, LN2_LO};
use super::{NAN, is_nan_bits};

/// Bits of 11/16: the reduced mantissa lies in [11/16, 11/8). A little below sqrt(1/2), because the
/// rounding errors of the polynomial grow faster on the positive side.
const SPLIT_BITS: u32 = 0x3f30_0000;

/// q in ln(1 + f) = f - f^2/2 + f^3 q(f) for f in [-5/16, 3/8], lowest power first.
///
/// Minimax for the relative error of the logarithm by Remez exchange in 200-bit arithmetic, rounded
/// to f32; then every set of one or two coefficients was moved by up to three last places as long
/// as the largest error in last places of the result fell. What is left is 0.013 of a last place.
pub(super) const COEFFICIENTS: [f32; 9] = [
    f32::from_bits(0x3eaa_aaa6),
    f32::from_bits(0xbe7f_ffa9),
    f32::from_bits(0x3e4c_d080),
    f32::from_bits(0xbe2a_c3e4),
    f32::from_bits(0x3e11_deaa),
    f32::from_bits(0xbdfb_05d5),
    f32::from_bits(0x3deb_7f2e),
    f32::from_bits(0xbe00_0bad),
    f32::from_bits(0x3db5_013e),
];

/// ln(1 + x).
///
/// `k ln(2) + ln(1 + f)` with `1 + x = 2^k (1 + f)`, f in two words. Monotone; the largest error
/// over all inputs is 0.607 units in the last place.
///
/// ±0 and tiny x are kept, -1 gives -inf, +inf gives +inf; below -1 and NaN give 0x7fc00000.
#[inline(always)]
pub fn log1p(x: f32) -> f32 {
    log1p_with(x, &COEFFICIENTS)
}

/// [`log1p`] with the polynomial as a parameter, so that a test can plant a wrong one.
#[inline(always)]
pub(super) fn log1p_with(x: f32, c: &[f32; 9]) -> f32 {
    // 1 + x exactly as u + u_lo (Knuth's two-sum: either term may be the larger).
    let u = 1.0 + x;
    let v = u - x;
    let u_lo = (x - (u - v)) + (1.0 - v);

    let shifted = u.to_bits().wrapping_add(0x3f80_0000 - SPLIT_BITS);
    let k = ((shifted >> 23) as i32).wrapping_sub(127);
    let m = f32::from_bits((shifted & 0x007f_ffff).wrapping_add(SPLIT_BITS));
    // Where 2^-k would leave the normal range, u_lo 2^-k is far below the last place of m.
    let k_scale = if k > 100 { 100 } else { k };
    let scale = f32::from_bits((127i32.wrapping_sub(k_scale) << 23) as u32);

    // f + g = (m - 1) + u_lo 2^-k exactly. For k = 0 that is x itself, and g = 0.
    let m1 = m - 1.0;
    let d = u_lo * scale;
    let f = m1 + d;
    let g = d - (f - m1);

    let q = c[7] + f * c[8];
    let q = c[6] + f * q;
    let q = c[5] + f * q;
    let q = c[4] + f * q;
    let q = c[3] + f * q;
    let q = c[2] + f * q;
    let q = c[1] + f * q;
    let q = c[0] + f * q;

    // f - f^2/2 as t + t_lo - half_sq_lo: the square of the upper 12 bits is exact.
    let f_hi = f32::from_bits(f.to_bits() & 0xffff_f000);
    let f_lo = f - f_hi;
    let half_sq = 0.5 * (f_hi * f_hi);
    let half_sq_lo = 0.5 * (f_lo * (f + f_hi));
    let t = f - half_sq;
    let t_lo = (f - t) - half_sq;

    // k LN2_HI is exact, and so is top + top_lo.
    let kf = k as f32;
    let base = kf * LN2_HI;
    let top = base + t;
    let top_lo = t - (top - base);

    // ln(1 + f + g) - ln(1 + f) = g/(1 + f) = g (1 - f + f^2), far below the last place.
    let from_g = g * (1.0 - f * (1.0 - f));
    let small = (from_g + kf * LN2_LO) + ((t_lo - half_sq_lo) + top_lo);
    let y = top + ((f * f) * (f * q) + small);

    // The result has the sign of x: this keeps -0.
    let y = f32::from_bits(y.to_bits() | (x.to_bits() & 0x8000_0000));
    let y = if x == f32::INFINITY { x } else { y };
    let y = if x == -1.0 { f32::NEG_INFINITY } else { y };
    if is_nan_bits(x.to_bits()) | (x < -1.0) {
        NAN
    } else {
        y
    }
}
