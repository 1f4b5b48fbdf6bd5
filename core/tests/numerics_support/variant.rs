//! The sources of the elementary functions once more, so that tests reach what the crate keeps to
//! itself and can plant a wrong constant.

const NAN: f32 = f32::from_bits(0x7fc0_0000);

const fn is_nan_bits(bits: u32) -> bool {
    bits & 0x7fff_ffff > 0x7f80_0000
}

#[path = "../../src/numerics/exp.rs"]
mod exp;
#[path = "../../src/numerics/log1p.rs"]
mod log1p;
#[path = "../../src/numerics/rope.rs"]
mod rope;

pub const EXP_COEFFICIENTS: [f32; 5] = exp::COEFFICIENTS;
pub const LOG1P_COEFFICIENTS: [f32; 9] = log1p::COEFFICIENTS;

#[inline(always)]
pub fn exp_with(x: f32, c: &[f32; 5]) -> f32 {
    exp::exp_with(x, c)
}

#[inline(always)]
pub fn log1p_with(x: f32, c: &[f32; 9]) -> f32 {
    log1p::log1p_with(x, c)
}

/// The inverse frequencies without the table.
pub fn rope_inv_freq_computed(theta: f32, rotary_dim: usize) -> Vec<f32> {
    rope::computed(theta, rotary_dim)
}
