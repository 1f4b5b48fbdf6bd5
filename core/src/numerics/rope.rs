//! Rotary angles: inverse frequencies, and cosine and sine of the angle.
//!
//! Made once on the host, in f64; devices get tables.

use alloc::vec::Vec;

/// The inverse frequencies of theta = 10^7 and 64 rotary dimensions, as f32 bits.
///
/// Tabulated, so that no library's `pow` is part of the contract. They are the bits of
/// `1.0 / 1e7 ** (arange(0, 64, 2).float() / 64)` in PyTorch, and of the computation below.
pub const ROPE_INV_FREQ_BITS: [u32; 32] = [
    0x3f80_0000,
    0x3f1a_b32b,
    0x3eba_f81b,
    0x3e61_f835,
    0x3e08_8d77,
    0x3da5_0956,
    0x3d47_763f,
    0x3cf1_1177,
    0x3c91_ad39,
    0x3c30_1052,
    0x3bd4_ca15,
    0x3b80_967d,
    0x3b1b_690d,
    0x3abb_d3ed,
    0x3a63_01e2,
    0x3a09_2e02,
    0x39a5_cb60,
    0x3948_60c1,
    0x38f2_2ce2,
    0x3892_587e,
    0x3830_df52,
    0x37d5_c441,
    0x3781_2dab,
    0x371c_1fc4,
    0x36bc_b0c1,
    0x3664_0cc6,
    0x3609_cf4a,
    0x35a6_8e4c,
    0x3549_4c57,
    0x34f3_499d,
    0x3493_048e,
    0x3431_af44,
];

/// The inverse frequencies `theta^(-2j/d)`, j in 0..d/2, d = `rotary_dim`.
///
/// From [`ROPE_INV_FREQ_BITS`] where theta is 10^7 and d divides 64 (every 64/d-th entry: the
/// exponents are the same numbers), computed otherwise.
///
/// # Panics
/// If `rotary_dim` is odd, or theta is not a finite number of at least 1.
pub fn rope_inv_freq(theta: f32, rotary_dim: usize) -> Vec<f32> {
    if theta == 1e7 && rotary_dim != 0 && 64 % rotary_dim == 0 && rotary_dim.is_multiple_of(2) {
        let step = 64 / rotary_dim;
        return ROPE_INV_FREQ_BITS
            .iter()
            .step_by(step)
            .map(|&b| f32::from_bits(b))
            .collect();
    }
    computed(theta, rotary_dim)
}

/// [`rope_inv_freq`] without the table: `1 / p`, p being `theta^e` rounded to f32 and e `2j/d`
/// rounded to f32. These are the roundings of the frameworks' f32 formula with an exact `pow`.
pub(super) fn computed(theta: f32, rotary_dim: usize) -> Vec<f32> {
    assert!(
        rotary_dim.is_multiple_of(2),
        "rotary dimensions come in pairs, not {rotary_dim}"
    );
    assert!(
        (1.0..=f32::MAX).contains(&theta),
        "RoPE theta {theta} is not a number of at least 1"
    );
    let ln_theta = ln_f64(f64::from(theta));
    (0..rotary_dim / 2)
        .map(|j| {
            let e = (2 * j) as f32 / rotary_dim as f32;
            1.0 / (exp_f64(f64::from(e) * ln_theta) as f32)
        })
        .collect()
}

/// The angle of a position: `f32(position) * inv_freq`, one rounding. Positions below 2^24.
#[inline(always)]
pub fn rope_angle(position: u32, inv_freq: f32) -> f32 {
    position as f32 * inv_freq
}

/// ln of a positive normal f64, to a few units in the last place.
fn ln_f64(x: f64) -> f64 {
    const SQRT_HALF_BITS: u64 = 0x3fe6_a09e_667f_3bcd;
    let shifted = x
        .to_bits()
        .wrapping_add(0x3ff0_0000_0000_0000 - SQRT_HALF_BITS);
    let k = (shifted >> 52) as i64 - 1023;
    let m = f64::from_bits((shifted & 0x000f_ffff_ffff_ffff) + SQRT_HALF_BITS);
    // ln m = 2 atanh(s) = 2 (s + s^3/3 + s^5/5 + ...), |s| <= 0.172: the terms after s^23 are below 2^-64.
    let s = (m - 1.0) / (m + 1.0);
    let s2 = s * s;
    let mut sum = 0.0;
    for i in (1..12u32).rev() {
        sum = (sum + 1.0 / f64::from(2 * i + 1)) * s2;
    }
    k as f64 * core::f64::consts::LN_2 + 2.0 * (s + s * sum)
}

/// e^x for |x| below 700, to a few units in the last place.
fn exp_f64(x: f64) -> f64 {
    // The upper part of ln 2 has 33 significant bits: its product with n is exact.
    const LN2_HI: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000);
    const LN2_LO: f64 = f64::from_bits(0x3dea_39ef_3579_3c76);
    let shifted = x * core::f64::consts::LOG2_E + MAGIC;
    let n = shifted - MAGIC;
    let r = (x - n * LN2_HI) - n * LN2_LO;
    // Taylor, |r| <= 0.347: the terms after r^14/14! are below 2^-62.
    let mut sum = 1.0;
    for i in (1..=14u32).rev() {
        sum = 1.0 + sum * r / f64::from(i);
    }
    let ni = shifted.to_bits().wrapping_sub(MAGIC.to_bits());
    sum * f64::from_bits(ni.wrapping_add(1023) << 52)
}

/// 1.5 * 2^52: adding it leaves the nearest integer in the low bits of the sum.
const MAGIC: f64 = 6_755_399_441_055_744.0;

/// pi/2 in two parts. The upper one has 33 significant bits: its product with the number of a
/// quadrant (below 2^18) is exact. The lower one is the rest, rounded to nearest.
const PIO2_HI: f64 = f64::from_bits(0x3ff9_21fb_5440_0000);
const PIO2_LO: f64 = f64::from_bits(0x3dd0_b461_1a62_6331);

/// -1/3!, 1/5!, -1/7!, ... : sin r = r + r^3 (...). What follows r^17 is below 2^-62 of r.
const SIN: [f64; 8] = [
    -1.0 / 6.0,
    1.0 / 120.0,
    -1.0 / 5_040.0,
    1.0 / 362_880.0,
    -1.0 / 39_916_800.0,
    1.0 / 6_227_020_800.0,
    -1.0 / 1_307_674_368_000.0,
    1.0 / 355_687_428_096_000.0,
];

/// 1/4!, -1/6!, 1/8!, ... : cos r = 1 - r^2/2 + r^4 (...). What follows r^18 is below 2^-66.
const COS: [f64; 8] = [
    1.0 / 24.0,
    -1.0 / 720.0,
    1.0 / 40_320.0,
    -1.0 / 3_628_800.0,
    1.0 / 479_001_600.0,
    -1.0 / 87_178_291_200.0,
    1.0 / 20_922_789_888_000.0,
    -1.0 / 6_402_373_705_728_000.0,
];

/// Cosine and sine of an angle in radians, `0 <= angle <= 262,144`, as (cos, sin), correctly
/// rounded (shown over all angles). Beyond that range the result is not specified.
///
/// Cody-Waite reduction by multiples of pi/2 and Taylor polynomials, all in f64; one rounding to
/// f32 at the end.
#[inline(always)]
pub fn rope_cos_sin(angle: f32) -> (f32, f32) {
    let x = f64::from(angle);
    let shifted = x * core::f64::consts::FRAC_2_PI + MAGIC;
    let n = shifted - MAGIC;
    let quadrant = shifted.to_bits();
    let a = x - n * PIO2_HI;
    let b = n * PIO2_LO;
    let r = a - b;
    let r_lo = (a - r) - b;
    let z = r * r;

    let mut s = SIN[7];
    let mut c = COS[7];
    for i in (0..7).rev() {
        s = SIN[i] + z * s;
        c = COS[i] + z * c;
    }
    let sin = nearest_f32(r, r_lo + (r * z) * s);
    let half = 0.5 * z;
    let w = 1.0 - half;
    let cos = nearest_f32(w, ((1.0 - w) - half) + ((z * z) * c - r * r_lo));

    // Quadrants 0..3: (cos, sin), (-sin, cos), (-cos, -sin), (sin, -cos).
    let (cos, sin) = if quadrant & 1 == 1 {
        (sin, cos)
    } else {
        (cos, sin)
    };
    let cos = if quadrant.wrapping_add(1) & 2 == 2 {
        -cos
    } else {
        cos
    };
    let sin = if quadrant & 2 == 2 { -sin } else { sin };
    (cos, sin)
}

/// hi + lo (|hi| > |lo|) to the nearest f32. The sum in f64 is rounded to odd first, so that the
/// two roundings in a row are as good as one.
#[inline(always)]
fn nearest_f32(hi: f64, lo: f64) -> f32 {
    let sum = hi + lo;
    let rest = lo - (sum - hi);
    let bits = sum.to_bits();
    // Towards zero by one if the rest has the other sign; then the last bit says "inexact".
    let overshot = (rest.to_bits() ^ bits) >> 63;
    let odd = bits.wrapping_sub(overshot) | 1;
    f64::from_bits(if rest == 0.0 { bits } else { odd }) as f32
}
