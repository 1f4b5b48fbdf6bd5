//! 1/sqrt(x) from multiplications, additions and bit operations.

use super::{NAN, is_nan_bits};

/// The upper 12 significant bits of x and the rest. Products of such parts are exact.
#[inline(always)]
fn split(x: f32) -> (f32, f32) {
    let hi = f32::from_bits(x.to_bits() & 0xffff_f000);
    (hi, x - hi)
}

/// 1/sqrt(x), correctly rounded (shown over all inputs), therefore monotone.
///
/// Newton's iteration to about one last place, then one step of third order with the residual
/// `1 - m y^2` in two words.
///
/// ±0 give ±inf (as IEEE 754's rSqrt), +inf gives +0; below zero and NaN give 0x7fc00000.
#[inline(always)]
pub fn rsqrt(x: f32) -> f32 {
    // Subnormals are brought into range by an even power of two.
    let bits = x.to_bits();
    let tiny = (bits & 0x7fff_ffff) < 0x0080_0000;
    let z = if tiny { x * 16_777_216.0 } else { x };
    let z_bits = z.to_bits();

    // z = m 4^e, m in [1, 4).
    let biased = ((z_bits >> 23) as i32).wrapping_sub(127);
    let e = biased >> 1;
    let m_exponent = (biased & 1).wrapping_add(127) as u32;
    let m = f32::from_bits((z_bits & 0x007f_ffff) | (m_exponent << 23));

    // The classical bit estimate is off by 3.4e-2; three steps: 1.8e-3, 4.7e-6, rounding.
    let half_m = 0.5 * m;
    let y = f32::from_bits(0x5f37_59df_u32.wrapping_sub(m.to_bits() >> 1));
    let y = y * (1.5 - (half_m * y) * y);
    let y = y * (1.5 - (half_m * y) * y);
    let y = y * (1.5 - (half_m * y) * y);

    // y^2 = p + p_lo, m p = w + w_lo: exact but for the last bit of p_lo.
    let (y_hi, y_lo) = split(y);
    let p_hi = y_hi * y_hi;
    let p_mid = 2.0 * (y_hi * y_lo);
    let p = p_hi + p_mid;
    let p_lo = (p_mid - (p - p_hi)) + y_lo * y_lo;
    let (m_hi, m_lo) = split(m);
    let (p_up, p_down) = split(p);
    let w = m * p;
    let w_lo = (((m_hi * p_up - w) + m_hi * p_down) + m_lo * p_up) + m_lo * p_down;
    let residual = ((1.0 - w) - w_lo) - m * p_lo;
    // (1 - residual)^(-1/2) = 1 + residual/2 + 3/8 residual^2: the last addition rounds y.
    let y = y + y * (residual * (0.5 + 0.375 * residual));

    let e = if tiny { e.wrapping_sub(12) } else { e };
    let y = y * f32::from_bits((127i32.wrapping_sub(e) << 23) as u32);

    let y = if bits & 0x7fff_ffff == 0 {
        f32::from_bits(bits | 0x7f80_0000)
    } else {
        y
    };
    let y = if x == f32::INFINITY { 0.0 } else { y };
    if is_nan_bits(bits) | (x < 0.0) {
        NAN
    } else {
        y
    }
}
