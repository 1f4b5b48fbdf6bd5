//! Every one-argument function against a correctly rounded source or f64, its monotonicity, and a
//! digest of its bits.
//!
//! Quick by default. Over all 2^32 inputs, with the measured maxima:
//! `LAYERLET_SLOW=1 cargo test --release -p layerlet-core --test numerics_exhaustive -- --nocapture --test-threads 1`

extern crate alloc;

mod numerics_support;

use layerlet_core::numerics::{
    exp, i32_to_f32, log1p, rope_angle, rope_cos_sin, rope_inv_freq, round_bf16, round_half_even,
    round_half_even_i32, rsqrt, sigmoid, silu, softplus,
};
use numerics_support::variant::{EXP_COEFFICIENTS, LOG1P_COEFFICIENTS, exp_with, log1p_with};
use numerics_support::{Report, Sweep, count, slow};

/// Digests of the results: over the quick choice of inputs, and over all inputs.
struct Pinned(&'static str, &'static str);

fn check(name: &str, report: &Report, max_ulp: f64, pinned: &Pinned) {
    println!("{}", report.line(name));
    if !slow() {
        println!("  (LAYERLET_SLOW=1 covers all 2^32 inputs)");
    }
    report
        .verdict(max_ulp)
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    let due = if slow() { pinned.1 } else { pinned.0 };
    assert_eq!(report.digest, due, "{name}: its bits have changed");
}

fn half_multiples_of_ln2() -> impl Iterator<Item = f32> {
    (-151..=130).map(|n| ((f64::from(n) + 0.5) * std::f64::consts::LN_2) as f32)
}

fn exp_sweep() -> Sweep<'static> {
    let mut critical = vec![
        88.722_84,
        -87.336_54,
        -103.972_08,
        -103.278_93,
        89.0,
        -104.0,
    ];
    critical.extend(half_multiples_of_ln2());
    Sweep {
        rounded: &core_math::expf,
        exact: &|x| core_math::exp(f64::from(x)),
        direction: 1,
        absolute_below: f32::NEG_INFINITY,
        critical,
        dense: (-0.36, -0.17),
    }
}

fn log1p_sweep() -> Sweep<'static> {
    let splits = (-24..=128).map(|k| (2f64.powi(k) * 11.0 / 16.0 - 1.0) as f32);
    Sweep {
        rounded: &core_math::log1pf,
        exact: &|x| core_math::log1p(f64::from(x)),
        direction: 1,
        absolute_below: f32::NEG_INFINITY,
        critical: splits.chain([-1.0, -0.999_999_9]).collect(),
        dense: (0.19, 0.376),
    }
}

fn rsqrt_sweep() -> Sweep<'static> {
    Sweep {
        rounded: &core_math::rsqrtf,
        exact: &|x| core_math::rsqrt(f64::from(x)),
        direction: -1,
        absolute_below: f32::NEG_INFINITY,
        critical: Vec::new(),
        dense: (1.0, 1.0),
    }
}

fn sigmoid_f64(x: f32) -> f64 {
    1.0 / (1.0 + (-f64::from(x)).exp())
}

fn silu_f64(x: f32) -> f64 {
    f64::from(x) / (1.0 + (-f64::from(x)).exp())
}

fn softplus_f64(x: f32) -> f64 {
    let x = f64::from(x);
    if x.is_nan() {
        x
    } else {
        x.max(0.0) + (-x.abs()).exp().ln_1p()
    }
}

#[test]
fn exp_is_within_its_bound_everywhere() {
    let report = exp_sweep().run(slow(), exp);
    check(
        "exp",
        &report,
        0.5827,
        &Pinned("2958e3a16471e285", "7f8689278371cc5b"),
    );
}

#[test]
fn log1p_is_within_its_bound_everywhere() {
    let report = log1p_sweep().run(slow(), log1p);
    check(
        "log1p",
        &report,
        0.607,
        &Pinned("0dd025781ff2ba2e", "4dd0e72d8e3683f4"),
    );
}

#[test]
fn rsqrt_is_correctly_rounded_everywhere() {
    let report = rsqrt_sweep().run(slow(), rsqrt);
    check(
        "rsqrt",
        &report,
        0.5,
        &Pinned("4a2db8c4c22a87fe", "9b3798f3e9b9e79a"),
    );
    assert_eq!(report.not_rounded, 0);
}

#[test]
fn sigmoid_is_pinned() {
    let sweep = Sweep {
        rounded: &|x| sigmoid_f64(x) as f32,
        exact: &sigmoid_f64,
        direction: 1,
        absolute_below: -88.722_83,
        critical: half_multiples_of_ln2().chain([-88.722_84]).collect(),
        dense: (-0.36, -0.17),
    };
    check(
        "sigmoid",
        &sweep.run(slow(), sigmoid),
        2.49,
        &Pinned("192399380b01bd94", "3d795d6b32853c2a"),
    );
}

#[test]
fn silu_is_pinned() {
    let sweep = Sweep {
        rounded: &|x| silu_f64(x) as f32,
        exact: &silu_f64,
        direction: 0,
        absolute_below: -88.722_83,
        critical: half_multiples_of_ln2().chain([-88.722_84]).collect(),
        dense: (-0.36, -0.17),
    };
    check(
        "silu",
        &sweep.run(slow(), silu),
        2.38,
        &Pinned("ae181981f53f42f0", "e3f2705b04f55ab8"),
    );
}

#[test]
fn softplus_is_pinned() {
    let sweep = Sweep {
        rounded: &|x| softplus_f64(x) as f32,
        exact: &softplus_f64,
        direction: 1,
        absolute_below: f32::NEG_INFINITY,
        critical: half_multiples_of_ln2().chain([20.0, -103.972_08]).collect(),
        dense: (-0.36, -0.17),
    };
    check(
        "softplus",
        &sweep.run(slow(), softplus),
        1.5,
        &Pinned("e638b40481c95b0e", "c38129aa236aff0d"),
    );
}

/// All f32 and all i32 are 2^32 bit patterns.
const ALL: u64 = 1 << 32;

fn bf16_differs(bits: u32, f: impl Fn(f32) -> half::bf16) -> bool {
    let x = f32::from_bits(bits);
    let (got, due) = (f(x), half::bf16::from_f32(x));
    got.to_bits() != due.to_bits() && !(got.is_nan() && due.is_nan())
}

#[test]
fn round_bf16_rounds_as_half_does() {
    assert_eq!(
        count(slow(), ALL, |bits| bf16_differs(bits, round_bf16)),
        (0, 0)
    );
    // Every tie and its two neighbours.
    for upper in 0..=0xffffu32 {
        for lower in [0x7fff, 0x8000, 0x8001] {
            assert!(
                !bf16_differs(upper << 16 | lower, round_bf16),
                "{upper:04x}{lower:04x}"
            );
        }
    }
}

fn half_even_differs(bits: u32, f: impl Fn(f32) -> f32) -> bool {
    let x = f32::from_bits(bits);
    let (got, due) = (f(x), x.round_ties_even());
    got.to_bits() != due.to_bits() && !(got.is_nan() && due.is_nan())
}

#[test]
fn round_half_even_rounds_ties_to_even() {
    assert_eq!(
        count(slow(), ALL, |bits| half_even_differs(bits, round_half_even)),
        (0, 0)
    );
    for twice in -(1 << 20)..=1 << 20 {
        let tie = (twice as f32) * 0.5;
        for x in [tie, tie.next_up(), tie.next_down()] {
            assert!(!half_even_differs(x.to_bits(), round_half_even), "{x:e}");
        }
    }
}

#[test]
fn round_half_even_i32_saturates_and_maps_nan_to_zero() {
    let differs = |bits: u32| {
        let x = f32::from_bits(bits);
        let due = x.round_ties_even().clamp(-4_194_304.0, 4_194_304.0) as i32;
        round_half_even_i32(x) != due
    };
    assert_eq!(count(slow(), ALL, differs), (0, 0));
    for twice in -300..=300 {
        let tie = twice as f32 * 0.5;
        for x in [tie, tie.next_up(), tie.next_down()] {
            assert!(!differs(x.to_bits()), "{x:e}");
        }
    }
}

#[test]
fn i32_to_f32_rounds_to_nearest_even() {
    let differs = |bits: u32| i32_to_f32(bits as i32) != bits as i32 as f32;
    assert_eq!(count(slow(), ALL, differs), (0, 0));
    // Ties and their neighbours in every binade above 2^24.
    for shift in 0..7u32 {
        for i in 0..1 << 12 {
            let tie = ((1 << 24) + i * 4097 % (1 << 24)) << shift | 1 << shift >> 1;
            for v in [tie - 1, tie, tie + 1] {
                assert!(!differs(v) && !differs(v.wrapping_neg()), "{v}");
            }
        }
    }
}

fn cos_sin_differs(angle: f32, f: impl Fn(f32) -> (f32, f32)) -> bool {
    let (cos, sin) = f(angle);
    cos.to_bits() != core_math::cosf(angle).to_bits()
        || sin.to_bits() != core_math::sinf(angle).to_bits()
}

/// One past the bits of the largest angle of a position below 262,144.
const ANGLES: u64 = 262_144f32.to_bits() as u64 + 1;

#[test]
fn rope_cos_sin_is_correctly_rounded() {
    let differs = |bits| cos_sin_differs(f32::from_bits(bits), rope_cos_sin);
    assert_eq!(count(slow(), ANGLES, differs), (0, 0));
}

#[test]
fn rope_cos_sin_is_correctly_rounded_on_every_angle_of_the_model() {
    let table = rope_inv_freq(1e7, 64);
    let differs = |i: u32| {
        let angle = rope_angle(i / 32, table[(i % 32) as usize]);
        cos_sin_differs(angle, rope_cos_sin)
    };
    assert_eq!(count(true, 262_144 * 32, differs), (0, 0));
}

/// A check is worth what it catches: each of these plants an error and expects the quick form of
/// the check to find it.
mod teeth {
    use super::*;

    /// A sweep without its dense range: what is planted here shows anywhere.
    fn sparse(sweep: Sweep<'static>) -> Sweep<'static> {
        Sweep {
            dense: (1.0, 1.0),
            ..sweep
        }
    }

    fn nudge(c: f32) -> f32 {
        f32::from_bits(c.to_bits() + 1)
    }

    #[test]
    fn any_coefficient_off_by_one_last_place_changes_the_digest() {
        let sweep = exp_sweep();
        let due = sweep.dense_digest(exp);
        assert_eq!(sweep.dense_digest(|x| exp_with(x, &EXP_COEFFICIENTS)), due);
        for i in 0..EXP_COEFFICIENTS.len() {
            let mut c = EXP_COEFFICIENTS;
            c[i] = nudge(c[i]);
            assert_ne!(sweep.dense_digest(|x| exp_with(x, &c)), due, "exp c[{i}]");
        }
        let sweep = log1p_sweep();
        let due = sweep.dense_digest(log1p);
        assert_eq!(
            sweep.dense_digest(|x| log1p_with(x, &LOG1P_COEFFICIENTS)),
            due
        );
        for i in 0..LOG1P_COEFFICIENTS.len() {
            let mut c = LOG1P_COEFFICIENTS;
            c[i] = nudge(c[i]);
            assert_ne!(
                sweep.dense_digest(|x| log1p_with(x, &c)),
                due,
                "log1p c[{i}]"
            );
        }
    }

    #[test]
    fn a_poor_coefficient_breaks_the_bound() {
        let mut c = EXP_COEFFICIENTS;
        c[1] = f32::from_bits(c[1].to_bits() + 64);
        assert!(
            sparse(exp_sweep())
                .run(false, |x| exp_with(x, &c))
                .verdict(0.5827)
                .is_err()
        );
        let mut c = LOG1P_COEFFICIENTS;
        c[2] = f32::from_bits(c[2].to_bits() + 64);
        assert!(
            sparse(log1p_sweep())
                .run(false, |x| log1p_with(x, &c))
                .verdict(0.607)
                .is_err()
        );
    }

    #[test]
    fn truncated_results_break_the_bound() {
        let truncated = |x: f32| {
            let (y, exact) = (exp(x), f64::from(x).exp());
            if f64::from(y) > exact && y.is_finite() {
                y.next_down()
            } else {
                y
            }
        };
        assert!(
            sparse(exp_sweep())
                .run(false, truncated)
                .verdict(0.5827)
                .is_err()
        );
    }

    #[test]
    fn one_step_back_is_seen() {
        // Within the bound on errors, so that only monotonicity can object.
        let at = 0.5f32;
        let below = exp(at.next_down());
        let dented = |x: f32| if x == at { below.next_down() } else { exp(x) };
        let error = sparse(exp_sweep())
            .run(false, dented)
            .verdict(2.0)
            .unwrap_err();
        assert!(error.contains("step"), "{error}");
    }

    #[test]
    fn special_values_are_seen() {
        let flushed = |x: f32| {
            if exp(x) < f32::MIN_POSITIVE {
                0.0
            } else {
                exp(x)
            }
        };
        assert!(
            sparse(exp_sweep())
                .run(false, flushed)
                .verdict(0.5827)
                .is_err()
        );
        let late_overflow = |x: f32| exp(x).min(f32::MAX);
        assert!(
            sparse(exp_sweep())
                .run(false, late_overflow)
                .verdict(0.5827)
                .is_err()
        );
        let nan_lost = |x: f32| if x.is_nan() { 0.0 } else { exp(x) };
        assert!(
            sparse(exp_sweep())
                .run(false, nan_lost)
                .verdict(0.5827)
                .is_err()
        );
        let sign_lost = |x: f32| log1p(x) + 0.0;
        assert!(
            sparse(log1p_sweep())
                .run(false, sign_lost)
                .verdict(0.607)
                .is_err()
        );
        let zero_unsigned = |x: f32| if x == 0.0 { f32::INFINITY } else { rsqrt(x) };
        assert!(
            sparse(rsqrt_sweep())
                .run(false, zero_unsigned)
                .verdict(0.5)
                .is_err()
        );
    }

    #[test]
    fn a_reciprocal_of_a_root_is_not_rsqrt() {
        let report = sparse(rsqrt_sweep()).run(false, |x| 1.0 / x.sqrt());
        assert!(report.verdict(0.5).is_err() && report.not_rounded > 0);
    }

    #[test]
    fn wrong_roundings_are_seen() {
        let cut = |x: f32| half::bf16::from_bits((x.to_bits() >> 16) as u16);
        assert!(count(false, ALL, |bits| bf16_differs(bits, cut)).0 > 0);
        let half_up = |x: f32| {
            let sum = x.to_bits().wrapping_add(0x8000);
            half::bf16::from_bits((sum >> 16) as u16)
        };
        let tie = 0x3f80_8000;
        assert!(bf16_differs(tie, half_up));
        assert!(half_even_differs(2.5f32.to_bits(), f32::round));
        assert!(count(false, ALL, |bits| half_even_differs(bits, f32::trunc)).0 > 0);
        let toward_zero = |bits: u32| {
            let v = bits as i32;
            let y = v as f32;
            let over = f64::from(y).abs() > f64::from(v).abs();
            let cut = if over {
                f32::from_bits(y.to_bits() - 1)
            } else {
                y
            };
            cut != y
        };
        assert!(count(false, ALL, toward_zero).0 > 0);
    }

    #[test]
    fn a_rotation_reduced_in_f32_is_seen() {
        let reduced = |x: f32| {
            let turns = (x * std::f32::consts::FRAC_1_PI * 0.5).round();
            let r = x - turns * std::f32::consts::TAU;
            (core_math::cosf(r), core_math::sinf(r))
        };
        assert!(
            count(false, ANGLES, |bits| cos_sin_differs(
                f32::from_bits(bits),
                reduced
            ))
            .0 > 0
        );
    }
}
