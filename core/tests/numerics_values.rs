//! Known answers, special values, tables and compositions.

extern crate alloc;

mod numerics_support;

use layerlet_core::numerics::{
    ROPE_INV_FREQ_BITS, delta_decay, draw_u64, exp, log1p, philox, rope_angle, rope_inv_freq,
    rsqrt, sigmoid, silu, softplus,
};
use numerics_support::variant::rope_inv_freq_computed;
use sha2::{Digest, Sha256};

const INF: f32 = f32::INFINITY;
const NAN: f32 = f32::NAN;

/// One bit pattern for every NaN, because the contract has only one.
fn bits(x: f32) -> u32 {
    if x.is_nan() { 0x7fc0_0000 } else { x.to_bits() }
}

fn assert_values(name: &str, f: impl Fn(f32) -> f32, table: &[(f32, f32)]) {
    for &(x, due) in table {
        assert_eq!(
            bits(f(x)),
            bits(due),
            "{name}({x:e}) = {:e}, not {due:e}",
            f(x)
        );
    }
}

#[test]
fn special_values() {
    let least = f32::from_bits(1);
    let any_nan = f32::from_bits(0xffc1_2345);
    let signalling = f32::from_bits(0x7f80_0001);
    assert_values(
        "exp",
        exp,
        &[
            (0.0, 1.0),
            (-0.0, 1.0),
            (least, 1.0),
            (INF, INF),
            (-INF, 0.0),
            (f32::MAX, INF),
            (f32::MIN, 0.0),
            (88.722_83, f32::from_bits(0x7f7f_ff84)),
            (88.722_84, INF),
            (-87.336_54, f32::from_bits(0x0080_0026)),
            (-87.336_55, f32::from_bits(0x007f_ffe6)),
            (-103.972_08, least),
            (-103.972_09, 0.0),
        ],
    );
    assert_values(
        "log1p",
        log1p,
        &[
            (0.0, 0.0),
            (-0.0, -0.0),
            (least, least),
            (-least, -least),
            (-1.0, -INF),
            ((-1.0f32).next_down(), NAN),
            (-INF, NAN),
            (INF, INF),
            (f32::MAX, 88.722_84),
        ],
    );
    assert_values(
        "rsqrt",
        rsqrt,
        &[
            (0.0, INF),
            (-0.0, -INF),
            (INF, 0.0),
            (-INF, NAN),
            (-least, NAN),
            (-1.0, NAN),
            (least, f32::from_bits(0x64b5_04f3)),
        ],
    );
    assert_values(
        "sigmoid",
        sigmoid,
        &[(0.0, 0.5), (-0.0, 0.5), (INF, 1.0), (-INF, 0.0)],
    );
    assert_values(
        "silu",
        silu,
        &[
            (0.0, 0.0),
            (-0.0, -0.0),
            (INF, INF),
            (-INF, NAN),
            (-100.0, -0.0),
            (f32::MIN, -0.0),
        ],
    );
    assert_values(
        "softplus",
        softplus,
        &[
            (INF, INF),
            (-INF, 0.0),
            (20.0f32.next_up(), 20.0f32.next_up()),
            (-104.0, 0.0),
        ],
    );
    for f in [exp, log1p, rsqrt] {
        for x in [NAN, any_nan, signalling] {
            assert_eq!(f(x).to_bits(), 0x7fc0_0000);
        }
    }
    for f in [sigmoid, silu, softplus] {
        assert!(f(NAN).is_nan() && f(any_nan).is_nan() && f(signalling).is_nan());
    }
}

#[test]
fn rsqrt_of_powers_of_four_is_exact() {
    for k in -74..=63 {
        let x = 2f64.powi(2 * k) as f32;
        assert_eq!(f64::from(rsqrt(x)), 2f64.powi(-k), "4^{k}");
    }
}

#[test]
fn compositions_are_what_they_say() {
    for key in (0..=u32::MAX).step_by(9973) {
        let x = f32::from_bits(key);
        assert_eq!(bits(sigmoid(x)), bits(1.0 / (1.0 + exp(-x))));
        assert_eq!(bits(silu(x)), bits(x / (1.0 + exp(-x))));
        assert_eq!(
            bits(softplus(x)),
            bits(if x > 20.0 { x } else { log1p(exp(x)) })
        );
    }
    // The order of operations is part of the contract: the other usual form gives other bits.
    let differ = (0..1000).filter(|&i| {
        let x = i as f32 * 0.01;
        silu(x).to_bits() != (x * sigmoid(x)).to_bits()
    });
    assert!(differ.count() > 100);
}

/// Extremes, and both sides of every threshold, of the arguments of [`delta_decay`].
fn decay_grid() -> Vec<f32> {
    let mut grid = vec![
        0.0, 1e-45, 1e-38, 1e-7, 20.0, 87.0, 88.0, 89.0, 100.0, 104.0, 1e4, 1e38,
    ];
    grid.extend([
        20.0f32.next_up(),
        88.722_84,
        88.722_83,
        103.972_08,
        f32::MAX,
        INF,
    ]);
    grid.extend((1..200).map(|i| i as f32 * 0.117));
    let negative: Vec<f32> = grid.iter().map(|x| -x).collect();
    grid.extend(negative);
    grid
}

#[test]
fn delta_decay_stays_in_its_range_and_is_pinned() {
    assert_eq!(delta_decay(100.0, -200.0), 1.0);
    assert_eq!(delta_decay(100.0, 5.0), 0.0);
    assert_eq!(delta_decay(INF, -INF), 1.0);
    assert_eq!(delta_decay(-INF, INF), 1.0);
    assert!(delta_decay(NAN, 0.0).is_nan() && delta_decay(0.0, NAN).is_nan());

    let grid = decay_grid();
    let mut hash = Sha256::new();
    let mut worst = (0.0, 0.0, 0.0);
    for &a_log in &grid {
        for &a in &grid {
            let y = delta_decay(a_log, a);
            assert!(
                (0.0..=1.0).contains(&y),
                "delta_decay({a_log:e}, {a:e}) = {y:e}"
            );
            hash.update(y.to_le_bytes());
            // Further out an f32 factor has overflowed or vanished, and so has the comparison.
            if a_log.abs() > 20.0 || a.abs() > 87.0 {
                continue;
            }
            let softplus = f64::from(a).max(0.0) + (-f64::from(a).abs()).exp().ln_1p();
            let exact = (-f64::from(a_log).exp() * softplus).exp();
            let error = (f64::from(y) - exact).abs();
            if error > worst.0 {
                worst = (error, a_log, a);
            }
        }
    }
    let digest: String = hash.finalize()[..8]
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    println!(
        "delta_decay: {} pairs, max absolute error {worst:?}",
        grid.len() * grid.len()
    );
    assert!(worst.0 < 1e-6, "{worst:?}");
    assert_eq!(digest, "37c9ffd070125867");

    // Without the clamps the grid would have found the NaN.
    let unclamped = |a_log: f32, a: f32| exp(-(exp(a_log) * softplus(a)));
    assert!(
        grid.iter()
            .any(|&l| grid.iter().any(|&a| unclamped(l, a).is_nan()))
    );
}

/// The known answers that come with Random123, the authors' implementation.
#[test]
fn philox_known_answers() {
    let ones = u32::MAX;
    let cases = [
        (
            [0; 4],
            [0; 2],
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8],
        ),
        (
            [ones; 4],
            [ones; 2],
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd],
        ),
        (
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        ),
    ];
    for (counter, key, due) in cases {
        assert_eq!(philox(counter, key), due);
    }
}

#[test]
fn draws_depend_on_every_bit_of_seed_and_position() {
    assert_eq!(draw_u64(0, 0), 0xe169_c58d_6627_e8d5);
    let due = draw_u64(0x0123_4567_89ab_cdef, 77);
    let words = philox([77, 0, 0, 0], [0x89ab_cdef, 0x0123_4567]);
    assert_eq!(due, u64::from(words[1]) << 32 | u64::from(words[0]));
    for bit in 0..64 {
        let other = draw_u64(0x0123_4567_89ab_cdef ^ 1 << bit, 77);
        assert!(
            (8..=56).contains(&(other ^ due).count_ones()),
            "seed bit {bit}"
        );
    }
    for bit in 0..32 {
        let other = draw_u64(0x0123_4567_89ab_cdef, 77 ^ 1 << bit);
        assert!(
            (8..=56).contains(&(other ^ due).count_ones()),
            "position bit {bit}"
        );
    }
}

fn to_bits(v: &[f32]) -> Vec<u32> {
    v.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn tabulated_frequencies_are_the_computed_ones() {
    assert_eq!(to_bits(&rope_inv_freq(1e7, 64)), ROPE_INV_FREQ_BITS);
    for d in [2, 4, 8, 16, 32, 64] {
        let computed = to_bits(&rope_inv_freq_computed(1e7, d));
        assert_eq!(to_bits(&rope_inv_freq(1e7, d)), computed, "{d} dimensions");
    }
    // PyTorch's `1.0 / 1e7 ** (torch.arange(0, 8, 2).float() / 8)`.
    let due = [0x3f80_0000, 0x3c91_ad39, 0x39a5_cb60, 0x36bc_b0c1];
    assert_eq!(to_bits(&rope_inv_freq(1e7, 8)), due);
}

#[test]
fn computed_frequencies_round_an_exact_power() {
    for theta in [1.0f32, 2.0, 1e4, 1.5e5, 5e5, 1e6, 1e7, 1.234_567e7, 1e30] {
        for d in [2, 6, 8, 12, 32, 64, 80, 96, 128, 192, 256] {
            for (j, got) in rope_inv_freq(theta, d).into_iter().enumerate() {
                let power = core_math::powf(theta, (2 * j) as f32 / d as f32);
                assert_eq!(got, 1.0 / power, "theta {theta}, {d} dimensions, j = {j}");
            }
        }
    }
}

#[test]
fn angles_are_rounded_once() {
    for inv in ROPE_INV_FREQ_BITS.map(f32::from_bits) {
        for position in (0..262_144u32).step_by(61).chain([262_143]) {
            let due = (f64::from(position) * f64::from(inv)) as f32;
            assert_eq!(rope_angle(position, inv), due);
        }
    }
}

#[test]
#[should_panic(expected = "come in pairs")]
fn odd_rotary_dimensions_are_refused() {
    rope_inv_freq(1e7, 7);
}
