//! Rotary angles: inverse frequencies, and cos and sin of the angle.
//!
//! Made once on the host, in f64 multiplications and additions; devices get tables.

/// `RN(1 / RN(theta^RN(2j/d)))` for j in 0..d/2 (RN: to nearest f32), which is what
/// `1.0 / theta ** (arange(0, d, 2).float() / d)` means in f32.
pub fn rope_inv_freq(theta: f64, rotary_dim: usize) -> alloc::vec::Vec<f32> {
    let ln_theta = ln_f64(theta);
    (0..rotary_dim / 2)
        .map(|j| {
            let e = (2 * j) as f32 / rotary_dim as f32;
            let power = exp_f64(f64::from(e) * ln_theta) as f32;
            1.0 / power
        })
        .collect()
}

/// `f32(position) * inv_freq`, rounded once (positions below 2^24 convert exactly).
#[inline]
pub fn rope_angle(position: u32, inv_freq: f32) -> f32 {
    position as f32 * inv_freq
}

/// ln of a positive normal f64, within a few units in the last place.
fn ln_f64(x: f64) -> f64 {
    // x = 2^k m with m in [sqrt(1/2), sqrt(2)); ln m = 2 atanh((m - 1)/(m + 1)).
    const SQRT_HALF_BITS: u64 = 0x3fe6_a09e_667f_3bcd;
    let shifted = x
        .to_bits()
        .wrapping_add(0x3ff0_0000_0000_0000 - SQRT_HALF_BITS);
    let k = (shifted >> 52) as i64 - 1023;
    let m = f64::from_bits((shifted & 0x000f_ffff_ffff_ffff) + SQRT_HALF_BITS);
    let s = (m - 1.0) / (m + 1.0);
    let s2 = s * s;
    // |s| <= 0.1716: the 12 terms leave 2^-60.
    let mut sum = 0.0;
    for i in (1..12u32).rev() {
        sum = (sum + 1.0 / f64::from(2 * i + 1)) * s2;
    }
    k as f64 * core::f64::consts::LN_2 + (2.0 * s + 2.0 * s * sum)
}

/// e^x for |x| below 700, within a few units in the last place.
fn exp_f64(x: f64) -> f64 {
    const LN2_HI: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000);
    const LN2_LO: f64 = f64::from_bits(0x3dea_39ef_3579_3c76);
    let shifted = x * core::f64::consts::LOG2_E + MAGIC;
    let n = shifted - MAGIC;
    let r = (x - n * LN2_HI) - n * LN2_LO;
    // |r| <= 0.347: the Taylor terms up to 14 leave 2^-62.
    let mut sum = 1.0;
    for i in (1..=14u32).rev() {
        sum = 1.0 + sum * r / f64::from(i);
    }
    let ni = shifted.to_bits().wrapping_sub(MAGIC.to_bits());
    sum * f64::from_bits(ni.wrapping_add(1023) << 52)
}

/// 1.5 * 2^52: adding it leaves the nearest integer in the low bits of the sum.
const MAGIC: f64 = 6_755_399_441_055_744.0;

/// pi/2 in two parts; the product of the upper one (33 bits) with a quadrant below 2^19 is exact.
const PIO2_HI: f64 = f64::from_bits(0x3ff9_21fb_5440_0000);
const PIO2_LO: f64 = f64::from_bits(0x3dd0_b461_1a62_6331);

/// cos and sin of an angle in radians, |angle| <= 262,144, as (cos, sin).
///
/// Evaluated in f64 and rounded once to f32; beyond the range the result is not specified.
#[inline]
pub fn rope_cos_sin(angle: f32) -> (f32, f32) {
    let x = f64::from(angle);
    let shifted = x * core::f64::consts::FRAC_2_PI + MAGIC;
    let n = shifted - MAGIC;
    let quadrant = shifted.to_bits();
    let r = (x - n * PIO2_HI) - n * PIO2_LO;
    let z = r * r;

    // Taylor to r^15 and r^16: the remainder is below 2^-53 of the leading term for |r| <= pi/4.
    let mut s = SIN[6];
    let mut c = COS[6];
    for i in (0..6).rev() {
        s = SIN[i] + z * s;
        c = COS[i] + z * c;
    }
    let sin = r + (r * z) * s;
    let cos = 1.0 + z * (-0.5 + z * c);

    let swap = quadrant & 1 == 1;
    let (a, b) = if swap { (sin, cos) } else { (cos, sin) };
    let a = if (quadrant.wrapping_add(1)) & 2 == 2 {
        -a
    } else {
        a
    };
    let b = if quadrant & 2 == 2 { -b } else { b };
    (a as f32, b as f32)
}

/// -1/3!, 1/5!, -1/7!, ... (each a correctly rounded quotient of integers).
const SIN: [f64; 7] = [
    -1.0 / 6.0,
    1.0 / 120.0,
    -1.0 / 5_040.0,
    1.0 / 362_880.0,
    -1.0 / 39_916_800.0,
    1.0 / 6_227_020_800.0,
    -1.0 / 1_307_674_368_000.0,
];
/// 1/4!, -1/6!, 1/8!, ...
const COS: [f64; 7] = [
    1.0 / 24.0,
    -1.0 / 720.0,
    1.0 / 40_320.0,
    -1.0 / 3_628_800.0,
    1.0 / 479_001_600.0,
    -1.0 / 87_178_291_200.0,
    1.0 / 20_922_789_888_000.0,
];
