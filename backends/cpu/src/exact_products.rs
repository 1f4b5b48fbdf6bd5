//! Where a fused multiply-add cannot change a bit, and the only place that uses one.
//!
//! The contract rounds a product, then the sum. A product of two bf16 that neither underflows nor
//! overflows is exact in f32, so that rounding it does nothing and both forms agree.

use layerlet_core::numerics::bf16;

/// `lane + x * w`, by fma where `FUSED`.
#[inline(always)]
pub fn multiply_add<const FUSED: bool>(lane: f32, x: f32, w: f32) -> f32 {
    match FUSED {
        true => x.mul_add(w, lane),
        false => lane + x * w,
    }
}

/// Whether the products of this row with another such row are exact in f32, so that a fused
/// multiply-add rounds what a multiplication and an addition round: every element is 0 or at least
/// 2^-67 and below 2^63 in magnitude.
///
/// Two bf16 have 8 significant bits each, their product 16. Its last place is 2^-148 or more, so it
/// is not lost to underflow, and it stays below 2^126.
#[inline(always)]
pub fn fits_fma(row: &[bf16]) -> bool {
    let outside = row.iter().filter(|x| {
        let magnitude = x.to_bits() & 0x7fff;
        magnitude != 0 && !(LEAST..LIMIT).contains(&magnitude)
    });
    outside.count() == 0
}

/// 2^-67 as bf16 bits.
const LEAST: u16 = (127 - 67) << 7;

/// 2^63 as bf16 bits.
const LIMIT: u16 = (127 + 63) << 7;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector::widen;
    use layerlet_core::numerics::philox;

    /// Every magnitude that matters to an exponent: both ends of each binade, and one between.
    fn magnitudes() -> impl Iterator<Item = u16> + Clone {
        (0..0x7f80).filter(|m| matches!(m & 0x7f, 0 | 1 | 0x55 | 0x7e | 0x7f))
    }

    /// Addends near the product, near its last place, at the ends of f32, and others.
    fn addends(product: f32, seed: u32) -> [f32; 8] {
        let [r, s, ..] = philox([seed, product.to_bits(), 0, 0], [3, 1]);
        let finite = |bits: u32| f32::from_bits(bits & 0xff7f_ffff);
        let place = f32::from_bits(product.to_bits() & 0x7f80_0000) * 2.0f32.powi(-23);
        [
            -product,
            -product + place,
            product * 0.5 + place,
            f32::MAX,
            -f32::MAX,
            f32::from_bits(1),
            finite(r),
            finite(s),
        ]
    }

    fn differs(a: bf16, b: bf16, c: f32) -> bool {
        let (a, b) = (widen(a), widen(b));
        multiply_add::<true>(c, a, b).to_bits() != multiply_add::<false>(c, a, b).to_bits()
    }

    #[test]
    fn fma_changes_no_bit_of_rows_that_fit() {
        let fitting = magnitudes().filter(|&m| fits_fma(&[bf16::from_bits(m)]));
        for a in fitting.clone() {
            for (n, b) in fitting.clone().enumerate() {
                let (a, b) = (
                    bf16::from_bits(a),
                    bf16::from_bits(b | ((n as u16 & 1) << 15)),
                );
                for c in addends(widen(a) * widen(b), n as u32) {
                    assert!(!differs(a, b, c), "{a} * {b} + {c}");
                }
            }
        }
    }

    #[test]
    fn beyond_the_bounds_it_does() {
        let (tiny, odd) = (2.0f32.powi(-75), 1.0078125);
        let small = bf16::from_f32(tiny * odd);
        assert!(!fits_fma(&[small]));
        let found = (0..200).any(|n| {
            addends(tiny * tiny, n)
                .iter()
                .any(|&c| differs(small, small, c))
        });
        assert!(
            found || differs(small, small, f32::from_bits(3)),
            "underflow"
        );
        let large = bf16::from_f32(2.0f32.powi(64));
        assert!(!fits_fma(&[large]));
        assert!(differs(large, large, -f32::MAX), "overflow");
        assert!(!fits_fma(&[bf16::NAN]) && !fits_fma(&[bf16::INFINITY]));
        assert!(fits_fma(&[bf16::ZERO, bf16::NEG_ZERO, bf16::ONE]));
    }
}
