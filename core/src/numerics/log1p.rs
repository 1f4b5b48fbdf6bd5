//! ln(1 + x) from multiplications, additions and bit operations.

use super::is_nan_bits;

/// ln 2 in two parts. The upper one has 15 significant bits: its product with k is exact.
const LN2_HI: f32 = f32::from_bits(0x3f31_7200);
const LN2_LO: f32 = f32::from_bits(0x35bf_be8e);

/// Coefficients of q in ln(1 + f) = f - f^2/2 + f^3 q(f) on [sqrt(1/2) - 1, sqrt(2) - 1]: minimax
/// for the relative error of the logarithm (Remez exchange in 200-bit arithmetic; each coefficient
/// is rounded to f32 in turn and the remaining ones are fitted again).
const Q: [f32; 9] = [
    f32::from_bits(0x3eaa_aaa4),
    f32::from_bits(0xbe80_0038),
    f32::from_bits(0x3e4c_d2a0),
    f32::from_bits(0xbe2a_978c),
    f32::from_bits(0x3e11_81b7),
    f32::from_bits(0xbe00_81e7),
    f32::from_bits(0x3df7_f76f),
    f32::from_bits(0xbddf_9e2d),
    f32::from_bits(0x3d5b_0901),
];

/// Bits of sqrt(1/2), the lower end of the reduced mantissa's range.
const SQRT_HALF_BITS: u32 = 0x3f35_04f3;

/// ln(1 + x): `k ln(2) + ln(1 + f)` with `1 + x = 2^k (1 + f)`, f in two words.
///
/// ±0 keep their sign, -1 gives -inf, +inf gives +inf; below -1 and NaN give 0x7fc00000.
#[inline]
pub fn log1p(x: f32) -> f32 {
    // 1 + x exactly as u + u_lo (two-sum).
    let u = 1.0 + x;
    let v = u - x;
    let u_lo = (x - (u - v)) + (1.0 - v);

    let shifted = u.to_bits().wrapping_add(0x3f80_0000 - SQRT_HALF_BITS);
    let k = (shifted >> 23) as i32 - 127;
    let m = f32::from_bits((shifted & 0x007f_ffff) + SQRT_HALF_BITS);
    // u_lo no longer matters where 2^-k would leave the normal range.
    let k_scale = if k > 100 { 100 } else { k };
    let scale = f32::from_bits(((127 - k_scale) << 23) as u32);

    // f + g = m - 1 + u_lo 2^-k exactly; for k = 0 that is x itself and g = 0.
    let m1 = m - 1.0;
    let d = u_lo * scale;
    let f = m1 + d;
    let g = d - (f - m1);

    let q = Q[7] + f * Q[8];
    let q = Q[6] + f * q;
    let q = Q[5] + f * q;
    let q = Q[4] + f * q;
    let q = Q[3] + f * q;
    let q = Q[2] + f * q;
    let q = Q[1] + f * q;
    let q = Q[0] + f * q;

    // f^2/2 = half_sq + half_sq_lo: the square of the upper 12 bits is exact.
    let f_hi = f32::from_bits(f.to_bits() & 0xffff_f000);
    let f_lo = f - f_hi;
    let half_sq = 0.5 * (f_hi * f_hi);
    let half_sq_lo = 0.5 * (f_lo * (f + f_hi));
    let t = f - half_sq;
    let t_lo = (f - t) - half_sq;

    let kf = k as f32;
    let base = kf * LN2_HI;
    let top = base + t;
    let top_lo = t - (top - base);

    let cube = (f * f) * f;
    let correction = g * (1.0 - f * (1.0 - f));
    let tail = (cube * q - half_sq_lo) + (correction + kf * LN2_LO);
    let y = top + (top_lo + (t_lo + tail));

    // The sign is that of x: -0 stays -0.
    let y = f32::from_bits(y.to_bits() | (x.to_bits() & 0x8000_0000));
    let y = if x == f32::INFINITY { x } else { y };
    let y = if x == -1.0 { f32::NEG_INFINITY } else { y };
    let invalid = is_nan_bits(x.to_bits()) | (x < -1.0);
    if invalid { super::NAN } else { y }
}
