//! Gates and activations: written compositions of [`exp`] and [`log1p`].

use super::{exp, log1p};

/// `1 / (1 + exp(-x))`; the division is correctly rounded.
#[inline]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `x / (1 + exp(-x))`; the division is correctly rounded.
///
/// exp(-x) overflows below -88.72: the result is -0 there (the true value is above -2.7e-37).
/// -inf gives NaN (inf/inf), as it does in the frameworks that write the same quotient.
#[inline]
pub fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// `x` above 20, `log1p(exp(x))` elsewhere, NaN included.
#[inline]
pub fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { log1p(exp(x)) }
}

/// The delta rule's decay `exp(-exp(a_log) * softplus(a_plus_bias))`, always in [0, 1] unless an
/// input is NaN: both factors are clamped to the largest finite f32, because 0 * inf would be NaN
/// (`a_log` of 100 with a strongly negative input) and would stay in the state for good.
#[inline]
pub fn delta_decay(a_log: f32, a_plus_bias: f32) -> f32 {
    let rate = clamp_finite(exp(a_log));
    let step = clamp_finite(softplus(a_plus_bias));
    exp(-(rate * step))
}

#[inline]
fn clamp_finite(x: f32) -> f32 {
    if x > f32::MAX { f32::MAX } else { x }
}
