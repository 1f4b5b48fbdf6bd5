//! 1/sqrt(x) from multiplications, additions and bit operations, correctly rounded.

use super::is_nan_bits;

/// The upper 12 significant bits of x and the rest; products of such parts are exact.
#[inline]
fn split(x: f32) -> (f32, f32) {
    let hi = f32::from_bits(x.to_bits() & 0xffff_f000);
    (hi, x - hi)
}

/// 1/sqrt(x), correctly rounded (shown over all inputs).
///
/// ±0 give ±inf (IEEE 754 rSqrt), +inf gives +0; below zero and NaN give 0x7fc00000.
#[inline]
pub fn rsqrt(x: f32) -> f32 {
    // Subnormals are brought into range by an even power of two.
    let bits = x.to_bits();
    let tiny = (bits & 0x7fff_ffff) < 0x0080_0000;
    let z = if tiny { x * 16_777_216.0 } else { x };
    let z_bits = z.to_bits();

    // z = m 4^e, m in [1, 4).
    let biased = (z_bits >> 23) as i32 - 127;
    let e = biased >> 1;
    let m = f32::from_bits((z_bits & 0x007f_ffff) | ((127 + (biased & 1)) as u32) << 23);

    // Newton from the classical bit estimate: 3.4e-2, 1.8e-3, 4.7e-6, then about one last place.
    let h = 0.5 * m;
    let y = f32::from_bits(0x5f37_59df - (m.to_bits() >> 1));
    let y = y * (1.5 - (h * y) * y);
    let y = y * (1.5 - (h * y) * y);
    let y = y * (1.5 - (h * y) * y);

    // residual = 1 - m y^2, its leading parts exact.
    let (yh, yl) = split(y);
    let a = yh * yh;
    let b = 2.0 * (yh * yl);
    let p = a + b;
    let p_lo = (b - (p - a)) + yl * yl;
    let (ph, pl) = split(p);
    let (mh, ml) = split(m);
    let w = m * p;
    let w_lo = (((mh * ph - w) + mh * pl) + ml * ph) + ml * pl;
    let residual = ((1.0 - w) - w_lo) - m * p_lo;
    let y = y + y * (residual * (0.5 + 0.375 * residual));

    let e = if tiny { e - 12 } else { e };
    let scale = f32::from_bits(((127 - e) << 23) as u32);
    let y = y * scale;

    let y = if bits & 0x7fff_ffff == 0 {
        f32::from_bits(bits | 0x7f80_0000)
    } else {
        y
    };
    let y = if x == f32::INFINITY { 0.0 } else { y };
    let invalid = is_nan_bits(bits) | (x < 0.0);
    if invalid { super::NAN } else { y }
}
