//! Scalar semantics: what a bf16, a sum, a dot product, an exponential *is* here.
//!
//! `core/NUMERICS.md` is the contract in words; this module is the same contract as code.

mod activations;
mod exp;
mod lanes;
mod log1p;
mod philox;
mod rope;
mod rounding;
mod rsqrt;

pub use activations::{delta_decay, sigmoid, silu, softplus};
pub use exp::exp;
pub use lanes::{LANES, lane_dot, lane_dot_bf16, lane_sum, lane_sum_rows, tree_sum};
pub use log1p::log1p;
pub use philox::{draw_u64, philox};
pub use rope::{ROPE_INV_FREQ_BITS, rope_angle, rope_cos_sin, rope_inv_freq};
pub use rounding::{bf16, i32_to_f32, round_bf16, round_half_even, round_half_even_i32};
pub use rsqrt::rsqrt;

/// The NaN that the elementary functions return.
const NAN: f32 = f32::from_bits(0x7fc0_0000);

/// NaN told from the bits, as devices must: some compile `x != x` to false.
#[inline(always)]
const fn is_nan_bits(bits: u32) -> bool {
    bits & 0x7fff_ffff > 0x7f80_0000
}
