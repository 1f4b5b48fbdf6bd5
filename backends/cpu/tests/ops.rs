//! Every operation with a kernel of its own, against its definition, over random shapes and content.

mod common;

use common::Case;
use common::random::Random;
use layerlet_core::NONE;
use layerlet_core::ops::*;
use proptest::prelude::*;

/// Widths around the 16, 32 and 64 that loops are cut into, and a few that make threads worth waking.
fn width() -> impl Strategy<Value = usize> {
    prop_oneof![1..=9usize, 28..=36usize, 60..=68usize, Just(100), Just(256)]
}

fn rows() -> impl Strategy<Value = usize> {
    prop_oneof![1..=6usize, 14..=19usize, Just(40)]
}

fn seed() -> impl Strategy<Value = u32> {
    any::<u32>()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn rms_norm(t in rows(), groups in 1..4usize, width in width(), gap in 0..2usize, seed in seed()) {
        let (mut case, mut r) = (Case::new(), Random::new(seed));
        let stride = width + gap * width;
        let weight = case.weight(&[width], &r.f32s(width));
        let x = case.step(&[t, groups * stride], &r.bf16s(t * groups * stride));
        let out = case.scratch(&[t, groups * width]);
        let offset = [WeightOffset::Zero, WeightOffset::One][r.below(2)];
        case.launch(RmsNorm { x, weight, out, eps: 1e-6, offset, stride });
        case.check();
    }

    #[test]
    fn add_rms_norm(t in rows(), width in width(), seed in seed()) {
        let (mut case, mut r) = (Case::new(), Random::new(seed));
        let weight = case.weight(&[width], &r.f32s(width));
        let x = case.step(&[t, width], &r.bf16s(t * width));
        let delta = case.step(&[t, width], &r.bf16s(t * width));
        let (sum, out) = (case.scratch(&[t, width]), case.scratch(&[t, width]));
        case.launch(AddRmsNorm { x, delta, weight, sum, out, eps: 1e-6, offset: WeightOffset::One });
        case.check();
    }

    #[test]
    fn quantize_rows(m in rows(), k in width(), tiny in any::<bool>(), seed in seed()) {
        let (mut case, mut r) = (Case::new(), Random::new(seed));
        let scale = if tiny { 1e-10 } else { 1.0 };
        let values: Vec<_> = r.f32s(m * k).iter().map(|x| layerlet_core::numerics::round_bf16(x * scale)).collect();
        let x = case.step(&[m, k], &values);
        let (codes, scale) = (case.scratch(&[m, k]), case.scratch(&[m]));
        case.launch(QuantizeRows { x, codes, scale });
        case.check();
    }

    #[test]
    fn linear_bf16(m in rows(), n in width(), k in width(), seed in seed()) {
        let (mut case, mut r) = (Case::new(), Random::new(seed));
        let weight = case.weight(&[n, k], &r.bf16s(n * k));
        let x = case.step(&[m, k], &r.bf16s(m * k));
        let out = case.scratch(&[m, n]);
        case.launch(LinearBf16 { x, weight, out });
        case.check();
    }

    #[test]
    fn linear_w8a8(m in rows(), n in width(), k in width(), seed in seed()) {
        let (mut case, mut r) = (Case::new(), Random::new(seed));
        let weight = case.weight(&[n, k], &r.codes(n * k));
        let weight_scale = case.weight(&[n], &r.scales(n));
        let codes = case.step(&[m, k], &r.codes(m * k));
        let mut scales = r.scales(m);
        scales[0] = if r.wild { f32::NAN } else { scales[0] };
        let scale = case.step(&[m], &scales);
        let (out, acc) = (case.scratch(&[m, n]), case.scratch(&[m, n]));
        let split = case.scratch(&[m, n]);
        case.launch(LinearW8A8 { codes, scale, weight, weight_scale, out });
        case.launch(LinearW8A8Partial { codes, weight, acc });
        case.launch(Dequantize { acc, scale, weight_scale, out: split });
        case.check();
    }

    #[test]
    fn causal_conv1d(t in rows(), s in 1..4usize, c in width(), w in 1..10usize, seed in seed()) {
        let (mut case, mut r) = (Case::new(), Random::new(seed));
        let rows = r.sequence_rows(t, s);
        let (reads, writes, slots) = r.slots(&rows, t);
        let weight = case.weight(&[c, w], &r.f32s(c * w));
        let state = case.state(&[slots, w - 1, c], &r.bf16s(slots * (w - 1) * c));
        let x = case.step(&[t, c], &r.bf16s(t * c));
        let seq_rows = case.step(&[s + 1], &rows);
        let state_read = case.step(&[s], &reads);
        let state_write = case.step(&[t], &writes);
        let out = case.scratch(&[t, c]);
        case.launch(CausalConv1d { x, weight, seq_rows, state_read, state_write, state, out });
        case.check();
    }

    #[test]
    fn delta_gates(t in rows(), heads in width(), seed in seed()) {
        let (mut case, mut r) = (Case::new(), Random::new(seed));
        let a_log = case.weight(&[heads], &r.f32s(heads));
        let dt_bias = case.weight(&[heads], &r.f32s(heads));
        let a = case.step(&[t, heads], &r.bf16s(t * heads));
        let b = case.step(&[t, heads], &r.bf16s(t * heads));
        let (decay, beta) = (case.scratch(&[t, heads]), case.scratch(&[t, heads]));
        case.launch(DeltaGates { a, b, a_log, dt_bias, decay, beta });
        case.check();
    }

    #[test]
    fn gated_delta_rule(
        t in prop_oneof![rows(), Just(70usize)],
        s in 1..4usize,
        key_heads in 1..3usize,
        group in 1..3usize,
        dk in prop_oneof![1..5usize, 30..36usize, Just(64)],
        dv in prop_oneof![1..5usize, 15..18usize, Just(40)],
        seed in seed(),
    ) {
        let (mut case, mut r) = (Case::new(), Random::new(seed));
        let rows = r.sequence_rows(t, s);
        let (reads, writes, slots) = r.slots(&rows, t);
        let hv = key_heads * group;
        let columns = 2 * key_heads * dk + hv * dv;
        let state = case.state(&[slots, hv, dk, dv], &r.f32s(slots * hv * dk * dv));
        let qkv = case.step(&[t, columns], &r.bf16s(t * columns));
        let gates: Vec<f32> = r.f32s(2 * t * hv).iter().map(|x| layerlet_core::numerics::sigmoid(*x)).collect();
        let decay = case.step(&[t, hv], &gates[..t * hv]);
        let beta = case.step(&[t, hv], &gates[t * hv..]);
        let seq_rows = case.step(&[s + 1], &rows);
        let state_read = case.step(&[s], &reads);
        let state_write = case.step(&[t], &writes);
        let out = case.scratch(&[t, hv * dv]);
        case.launch(GatedDeltaRule {
            qkv, decay, beta, seq_rows, state_read, state_write, state, out,
            key_heads, l2_eps: 1e-6, scale: 0.125,
        });
        case.check();
    }

    #[test]
    fn gated_rms_norm(t in rows(), heads in 1..4usize, width in width(), seed in seed()) {
        let (mut case, mut r) = (Case::new(), Random::new(seed));
        let weight = case.weight(&[width], &r.f32s(width));
        let x = case.step(&[t, heads * width], &r.bf16s(t * heads * width));
        let gate = case.step(&[t, heads * width], &r.bf16s(t * heads * width));
        let out = case.scratch(&[t, heads * width]);
        case.launch(GatedRmsNorm { x, gate, weight, out, eps: 1e-6 });
        case.check();
    }

    #[test]
    fn rope(t in rows(), heads in 1..4usize, half in 0..20usize, rest in 0..20usize, seed in seed()) {
        let (mut case, mut r) = (Case::new(), Random::new(seed));
        let head_dim = (2 * half + rest).max(1);
        let table = case.weight(&[50, 2, half], &r.bf16s(50 * 2 * half));
        let x = case.step(&[t, heads * head_dim], &r.bf16s(t * heads * head_dim));
        let at: Vec<u32> = (0..t).map(|_| r.below(50) as u32).collect();
        let positions = case.step(&[t], &at);
        let out = case.scratch(&[t, heads * head_dim]);
        case.launch(Rope { x, positions, table, out, head_dim });
        case.check();
    }

    #[test]
    fn paged_attention(
        t in 1..7usize,
        s in 1..4usize,
        groups in 1..3usize,
        per_group in 1..4usize,
        dim in prop_oneof![1..5usize, 15..18usize, 31..34usize, Just(64)],
        page_size in prop_oneof![Just(1usize), Just(7), Just(16), Just(64)],
        most in prop_oneof![1..70usize, 120..200usize],
        seed in seed(),
    ) {
        let (mut case, mut r) = (Case::new(), Random::new(seed));
        let rows = r.sequence_rows(t, s);
        let per_seq = most.div_ceil(page_size);
        let pages = s * per_seq + 1;
        let heads = groups * per_group;
        let cache = pages * page_size * groups * dim;
        let k_cache = case.state(&[pages, page_size, groups, dim], &r.bf16s(cache));
        let v_cache = case.state(&[pages, page_size, groups, dim], &r.bf16s(cache));
        // Queries of zeros weigh all positions alike: then the order of the sums shows.
        let queries = match r.absorbing {
            true => vec![layerlet_core::numerics::bf16::ZERO; t * heads * dim],
            false => r.bf16s(t * heads * dim),
        };
        let q = case.step(&[t, heads * dim], &queries);
        let q_gate = case.step(&[t, 2 * heads * dim], &r.bf16s(t * 2 * heads * dim));
        let at: Vec<u32> = (0..t).map(|_| r.below(most) as u32).collect();
        let positions = case.step(&[t], &at);
        let sequence = r.row_seq(&rows, t);
        let row_seq = case.step(&[t], &sequence);
        let table = r.distinct(s * per_seq, pages);
        let page_table = case.step(&[s, per_seq], &table);
        let out = case.scratch(&[t, heads * dim]);
        case.launch(PagedAttention {
            q, q_gate, k_cache, v_cache, positions, row_seq, page_table, out, scale: 0.25,
        });
        case.check();
    }
}

#[test]
fn step_data_out_of_range_is_refused_as_the_definition_does() {
    let mut case = Case::new();
    let table = case.weight(&[4, 2, 1], &Random::new(1).bf16s(8));
    let x = case.step(&[1, 2], &Random::new(2).bf16s(2));
    let positions = case.step(&[1], &[4u32]);
    let out = case.scratch(&[1, 2]);
    case.launch(Rope {
        x,
        positions,
        table,
        out,
        head_dim: 2,
    });
    assert!(case.refusal().contains("position of row 0 is 4"));

    let mut case = Case::new();
    let weight = case.weight(&[1, 2], &[1.0f32, 2.0]);
    let state = case.state(&[2, 1, 1], &Random::new(1).bf16s(2));
    let x = case.step(&[2, 1], &Random::new(2).bf16s(2));
    let seq_rows = case.step(&[2], &[0u32, 2]);
    let state_read = case.step(&[1], &[NONE]);
    let state_write = case.step(&[2], &[1u32, 1]);
    let out = case.scratch(&[2, 1]);
    case.launch(CausalConv1d {
        x,
        weight,
        seq_rows,
        state_read,
        state_write,
        state,
        out,
    });
    assert!(
        case.refusal()
            .contains("a slot that no other row of the step writes")
    );
}
