//! Gates and activations: written compositions of [`exp`] and [`log1p`].

use super::{exp, log1p};

/// `1 / (1 + exp(-x))`, each operation rounded once.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `x / (1 + exp(-x))`, each operation rounded once.
///
/// Below -88.73 exp(-x) overflows and the result is -0. -inf gives NaN (inf/inf), as it does in
/// every framework that writes the same quotient.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// `x` above 20 (the threshold of the frameworks), `log1p(exp(x))` elsewhere.
#[inline(always)]
pub fn softplus(x: f32) -> f32 {
    let y = log1p(exp(x));
    if x > 20.0 { x } else { y }
}

/// The decay of the gated delta rule, `exp(-exp(a_log) * softplus(a_plus_bias))`.
///
/// Both factors are clamped to the largest finite f32: 0 * inf would be NaN (`a_log` of 100 with a
/// strongly negative gate) and would stay in the state for good. So the result is in [0, 1] for
/// all inputs but NaN.
#[inline(always)]
pub fn delta_decay(a_log: f32, a_plus_bias: f32) -> f32 {
    let rate = finite(exp(a_log));
    let step = finite(softplus(a_plus_bias));
    exp(-(rate * step))
}

#[inline(always)]
fn finite(x: f32) -> f32 {
    if x > f32::MAX { f32::MAX } else { x }
}
