//! What values a parameter has: a triangle of some centre and half width.
//!
//! Invariants: values are finite; each is one multiplication and one addition away from an integer, so
//! that every machine gives the same bits.

use super::stream::{CODE_MAX, INTEGER_MAX};
use crate::checkpoint::{Kept, Parameter};
use layerlet_core::numerics::rsqrt;

/// Half width of a triangle of standard deviation 1.
const ROOT_6: f32 = 2.449_489_8;

/// How far norm weights are from the one that changes nothing, at most.
const NORM_SPREAD: f32 = 0.125;

/// A triangular distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Triangle {
    centre: f32,
    half_width: f32,
}

impl Triangle {
    /// The distribution of a parameter's weights.
    pub fn of(parameter: &Parameter) -> Triangle {
        let (parent, name) = match parameter.module.rsplit_once('.') {
            Some((parent, name)) => (parent, name),
            None => ("", parameter.module.as_str()),
        };
        match name {
            // Decay rates of 1 to 16 for every unit of step size, and steps of 0.001 to 0.1, as these
            // layers are initialised.
            "A_log" => Triangle::between(0.0, 2.75),
            "dt_bias" => Triangle::between(-6.75, -2.25),
            "embed_tokens" => Triangle::deviating(1.0),
            // The gated norm multiplies by its weight, the others by one more than it.
            "norm" if parent.ends_with(".linear_attn") => Triangle::near(1.0),
            _ if parameter.kept == Kept::F32 && parameter.shape.len() == 1 => Triangle::near(0.0),
            // Linears, and the convolution, whose rows are channels.
            _ => Triangle::deviating(rsqrt(parameter.columns() as f32)),
        }
    }

    fn between(low: f32, high: f32) -> Triangle {
        Triangle {
            centre: (low + high) / 2.0,
            half_width: (high - low) / 2.0,
        }
    }

    fn near(centre: f32) -> Triangle {
        Triangle {
            centre,
            half_width: NORM_SPREAD,
        }
    }

    /// Around zero, of this standard deviation.
    fn deviating(deviation: f32) -> Triangle {
        Triangle {
            centre: 0.0,
            half_width: deviation * ROOT_6,
        }
    }

    /// The distribution of row scales with which codes have this one. Rows of a trained linear differ:
    /// here by up to a quarter.
    pub fn scales(self) -> Triangle {
        let centre = self.half_width / f32::from(CODE_MAX);
        Triangle {
            centre,
            half_width: centre / 4.0,
        }
    }

    /// The value that an integer of the stream stands for.
    pub fn value(self, n: i16) -> f32 {
        self.centre + f32::from(n) * (self.half_width / f32::from(INTEGER_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::parameters;
    use crate::synth::Preset;
    use crate::synth::stream::Stream;

    fn triangle(module: &str) -> Triangle {
        let config = Preset::Tiny.config();
        let found = parameters(&config).find(|p| p.module == module);
        Triangle::of(&found.unwrap_or_else(|| panic!("{module} is a parameter")))
    }

    #[test]
    fn parameters_have_their_distribution() {
        let check =
            |module: &str, expect: Triangle| assert_eq!(triangle(module), expect, "{module}");
        check("embed_tokens", Triangle::deviating(1.0));
        check("lm_head", Triangle::deviating(0.125));
        check("norm", Triangle::near(0.0));
        check("layers.3.self_attn.q_norm", Triangle::near(0.0));
        check("mtp.norm", Triangle::near(0.0));
        check("layers.0.linear_attn.norm", Triangle::near(1.0));
        check("layers.0.linear_attn.A_log", Triangle::between(0.0, 2.75));
        check("layers.0.linear_attn.conv1d", Triangle::deviating(0.5));
        check(
            "layers.0.linear_attn.in_proj_qkv",
            Triangle::deviating(0.125),
        );
        check(
            "layers.0.mlp.experts.gate_up_proj",
            Triangle::deviating(0.125),
        );
        check("layers.0.mlp.gate", Triangle::deviating(0.125));
        let down = triangle("layers.0.mlp.experts.down_proj");
        assert!((down.half_width * down.half_width * 32.0 - 6.0).abs() < 1e-4);
    }

    fn values(triangle: Triangle, count: usize) -> Vec<f32> {
        Stream::new(1, "values").integers(count, |n| triangle.value(n))
    }

    #[test]
    fn values_have_centre_and_width() {
        let found = values(Triangle::between(-3.0, 5.0), 1 << 16);
        assert!(found.iter().all(|v| (-3.0..=5.0).contains(v)));
        let mean = found.iter().sum::<f32>() / found.len() as f32;
        assert!((mean - 1.0).abs() < 0.05, "{mean}");
        let found = values(Triangle::deviating(2.0), 1 << 16);
        let square = found.iter().map(|v| v * v).sum::<f32>() / found.len() as f32;
        assert!((square - 4.0).abs() < 0.1, "{square}");
    }

    /// Codes times scales deviate as the linear's weights should.
    #[test]
    fn codes_and_scales_have_unit_gain() {
        let columns = 64;
        let scales = triangle("layers.0.mlp.experts.gate_up_proj").scales();
        let scales = values(scales, 1024);
        let codes = Stream::new(1, "codes").codes(1024 * columns);
        let rows = codes.chunks(columns).zip(scales);
        let energy: f32 = rows
            .map(|(row, scale)| {
                let squares = row.iter().map(|&c| f32::from(c) * f32::from(c));
                squares.sum::<f32>() * scale * scale
            })
            .sum();
        assert!((energy / 1024.0 - 1.0).abs() < 0.05, "{}", energy / 1024.0);
    }
}
