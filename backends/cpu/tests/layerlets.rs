//! Every layerlet against its stages, with and without the intermediates that only the stages see.
//! Those that are not kept must still be poison afterwards: the fused kernel ran, not its stages.

mod common;

use common::Case;
use common::random::Random;
use layerlet_core::NONE;
use layerlet_core::buffer::Buf;
use layerlet_core::launch::Layerlet;
use layerlet_core::numerics::bf16;
use layerlet_core::ops::*;
use proptest::prelude::*;

fn width() -> impl Strategy<Value = usize> {
    prop_oneof![1..=5usize, 30..=34usize, Just(70)]
}

fn rows() -> impl Strategy<Value = usize> {
    prop_oneof![1..=4usize, 15..=18usize, Just(40)]
}

/// Weights of a linear layer, dense or of all experts, in either format.
#[derive(Clone, Copy)]
enum Weight {
    Bf16(Buf<bf16>),
    W8A8(Buf<i8>, Buf<f32>),
}

fn weight(case: &mut Case, r: &mut Random, shape: &[usize], w8a8: bool) -> Weight {
    let elements = shape.iter().product();
    let (scales, _) = shape.split_at(shape.len() - 1);
    match w8a8 {
        false => Weight::Bf16(case.weight(shape, &r.bf16s(elements))),
        true => {
            let codes = case.weight(shape, &r.codes(elements));
            Weight::W8A8(
                codes,
                case.weight(scales, &r.scales(scales.iter().product())),
            )
        }
    }
}

/// The input of linears: bf16, and codes once somebody has wanted them.
#[derive(Clone, Copy)]
struct Input {
    x: Buf<bf16>,
    rows: usize,
    k: usize,
    codes: Option<(Buf<i8>, Buf<f32>)>,
}

impl Input {
    fn new(x: Buf<bf16>, rows: usize, k: usize) -> Input {
        Input {
            x,
            rows,
            k,
            codes: None,
        }
    }

    fn codes(&mut self, case: &mut Case) -> (Buf<i8>, Buf<f32>) {
        *self.codes.get_or_insert_with(|| {
            let (codes, scale) = (
                case.scratch(&[self.rows, self.k]),
                case.scratch(&[self.rows]),
            );
            case.launch(QuantizeRows {
                x: self.x,
                codes,
                scale,
            });
            (codes, scale)
        })
    }
}

fn linear(case: &mut Case, input: &mut Input, w: Weight, n: usize) -> Buf<bf16> {
    match w {
        Weight::Bf16(weight) => {
            let out = case.scratch(&[input.rows, n]);
            case.launch(LinearBf16 {
                x: input.x,
                weight,
                out,
            });
            out
        }
        Weight::W8A8(weight, weight_scale) => {
            let (codes, scale) = input.codes(case);
            let out = case.scratch(&[input.rows, n]);
            case.launch(LinearW8A8 {
                codes,
                scale,
                weight,
                weight_scale,
                out,
            });
            out
        }
    }
}

/// Where the pairs of a step stand.
#[derive(Clone, Copy)]
struct Routes {
    offsets: Buf<u32>,
    slot_of_row: Buf<u32>,
    source: RowSource,
    pairs: usize,
}

fn grouped(case: &mut Case, input: &mut Input, w: Weight, n: usize, routes: Routes) -> Buf<bf16> {
    let Routes {
        offsets,
        slot_of_row,
        source,
        pairs,
    } = routes;
    match w {
        Weight::Bf16(weight) => {
            let out = case.scratch(&[pairs, n]);
            case.launch(GroupedLinearBf16 {
                x: input.x,
                weight,
                offsets,
                slot_of_row,
                out,
                source,
            });
            out
        }
        Weight::W8A8(weight, weight_scale) => {
            let (codes, scale) = input.codes(case);
            let out = case.scratch(&[pairs, n]);
            case.launch(GroupedLinearW8A8 {
                codes,
                scale,
                weight,
                weight_scale,
                offsets,
                slot_of_row,
                out,
                source,
            });
            out
        }
    }
}

/// Sizes of a mixture of experts and which of its linears are W8A8.
#[derive(Clone, Copy, Debug)]
struct Moe {
    t: usize,
    k: usize,
    experts: usize,
    h: usize,
    inner: usize,
    formats: u8,
}

fn moe() -> impl Strategy<Value = Moe> {
    (rows(), 1..4usize, 3..7usize, width(), width(), any::<u8>()).prop_map(
        |(t, k, experts, h, inner, formats)| Moe {
            t,
            k,
            experts,
            h,
            inner,
            formats,
        },
    )
}

impl Moe {
    fn w8a8(&self, bit: u8) -> bool {
        self.formats >> bit & 1 == 1
    }
}

/// The stages from routes to weighted sum.
fn routed_experts(
    case: &mut Case,
    m: Moe,
    [up, down]: [Weight; 2],
    mut x: Input,
    ids: Buf<u32>,
    weights: Buf<f32>,
) -> Buf<bf16> {
    let pairs = m.t * m.k;
    let offsets = case.scratch(&[m.experts + 1]);
    let (slot_of_row, row_of_slot) = (case.scratch(&[pairs]), case.scratch(&[pairs]));
    case.launch(ExpertPrologue {
        ids,
        offsets,
        slot_of_row,
        row_of_slot,
    });
    let routes = Routes {
        offsets,
        slot_of_row,
        source: RowSource::Token { k: m.k },
        pairs,
    };
    let gate_up = grouped(case, &mut x, up, 2 * m.inner, routes);
    let out = case.scratch(&[pairs, m.inner]);
    case.launch(SiluMul { gate_up, out });
    let routes = Routes {
        source: RowSource::Row,
        ..routes
    };
    let y = grouped(
        case,
        &mut Input::new(out, pairs, m.inner),
        down,
        m.h,
        routes,
    );
    let out = case.scratch(&[m.t, m.h]);
    case.launch(WeightedGather {
        y,
        row_of_slot,
        weights,
        out,
    });
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn quantize_linear(m in rows(), k in width(), ns in prop::collection::vec(width(), 1..4), seed in any::<u32>()) {
        let (mut case, mut r) = (Case::new(), Random::new(seed));
        let weights: Vec<_> = ns.iter().map(|&n| (weight(&mut case, &mut r, &[n, k], true), n)).collect();
        let x = case.step(&[m, k], &r.bf16s(m * k));
        let mut x = Input::new(x, m, k);
        for (w, n) in weights {
            linear(&mut case, &mut x, w, n);
        }
        case.check_fused(Layerlet::QuantizeLinear);
    }

    #[test]
    fn routed_moe(m in moe(), outside in any::<bool>(), seed in any::<u32>()) {
        let (mut case, mut r) = (Case::new(), Random::new(seed));
        let up = weight(&mut case, &mut r, &[m.experts, 2 * m.inner, m.h], m.w8a8(0) || outside);
        let down = weight(&mut case, &mut r, &[m.experts, m.h, m.inner], m.w8a8(1));
        let x = case.step(&[m.t, m.h], &r.bf16s(m.t * m.h));
        let kind = r.below(4);
        let chosen: Vec<u32> = (0..m.t * m.k).map(|_| match kind {
            0 => 1,
            1 if r.chance(2) => NONE,
            _ => r.below(m.experts) as u32,
        }).collect();
        let ids = case.step(&[m.t, m.k], &chosen);
        let weights = case.step(&[m.t, m.k], &r.f32s(m.t * m.k));
        let mut x = Input::new(x, m.t, m.h);
        if outside {
            // Codes that another launch made, as when the shared expert reads them too.
            let codes = case.step(&[m.t, m.h], &r.codes(m.t * m.h));
            x.codes = Some((codes, case.step(&[m.t], &r.scales(m.t))));
        }
        routed_experts(&mut case, m, [up, down], x, ids, weights);
        case.check_fused(Layerlet::RoutedMoe);
    }

    #[test]
    fn moe_layer(m in moe(), shared_inner in width(), one_quantisation in any::<bool>(), seed in any::<u32>()) {
        let (mut case, mut r) = (Case::new(), Random::new(seed));
        let (h, w8a8) = (m.h, |bit| m.w8a8(bit));
        let router = weight(&mut case, &mut r, &[m.experts, h], w8a8(2));
        let up = weight(&mut case, &mut r, &[m.experts, 2 * m.inner, h], w8a8(0));
        let down = weight(&mut case, &mut r, &[m.experts, h, m.inner], w8a8(1));
        let gate = weight(&mut case, &mut r, &[1, h], w8a8(3));
        let shared_up = weight(&mut case, &mut r, &[2 * shared_inner, h], w8a8(4));
        let shared_down = weight(&mut case, &mut r, &[h, shared_inner], w8a8(5));
        let x = case.step(&[m.t, h], &r.bf16s(m.t * h));
        let sequence: Vec<u32> = (0..m.t).map(|_| if r.chance(5) { NONE } else { 0 }).collect();
        let row_seq = case.step(&[m.t], &sequence);
        let fresh = Input::new(x, m.t, h);
        let mut x = fresh;
        let one_quantisation = one_quantisation && [0, 2, 3, 4].into_iter().any(w8a8);
        if one_quantisation {
            x.codes(&mut case);
        }
        let next = |used: Input| if one_quantisation { used } else { fresh };

        let k = m.k.min(m.experts);
        let m = Moe { k, ..m };
        let logits = linear(&mut case, &mut x, router, m.experts);
        let (ids, weights) = (case.scratch(&[m.t, k]), case.scratch(&[m.t, k]));
        case.launch(RouterTopK { logits, row_seq, ids, weights });
        let routed = routed_experts(&mut case, m, [up, down], next(x), ids, weights);
        let mut x = next(x);
        let gate_up = linear(&mut case, &mut x, shared_up, 2 * shared_inner);
        let gate = linear(&mut case, &mut x, gate, 1);
        let out = case.scratch(&[m.t, shared_inner]);
        case.launch(SiluMul { gate_up, out });
        let shared = linear(&mut case, &mut Input::new(out, m.t, shared_inner), shared_down, h);
        let out = case.scratch(&[m.t, h]);
        case.launch(SharedExpert { shared, gate, routed, out });
        case.check_fused(Layerlet::MoeLayer);
    }

    #[test]
    fn gdn_layer(
        t in prop_oneof![rows(), Just(70usize)],
        s in 1..4usize,
        key_heads in 1..3usize,
        group in 1..3usize,
        dk in prop_oneof![1..4usize, 31..34usize],
        dv in prop_oneof![1..4usize, 15..18usize, Just(40)],
        w in 2..9usize,
        seed in any::<u32>(),
    ) {
        let (mut case, mut r) = (Case::new(), Random::new(seed));
        let rows = r.sequence_rows(t, s);
        let (reads, writes, slots) = r.slots(&rows, t);
        let hv = key_heads * group;
        let c = 2 * key_heads * dk + hv * dv;
        let weight = case.weight(&[c, w], &r.f32s(c * w));
        let (a_log, dt_bias) = (case.weight(&[hv], &r.f32s(hv)), case.weight(&[hv], &r.f32s(hv)));
        let norm = case.weight(&[dv], &r.f32s(dv));
        let conv_state = case.state(&[slots, w - 1, c], &r.bf16s(slots * (w - 1) * c));
        let state = case.state(&[slots, hv, dk, dv], &r.f32s(slots * hv * dk * dv));
        let x = case.step(&[t, c], &r.bf16s(t * c));
        let (a, b) = (case.step(&[t, hv], &r.bf16s(t * hv)), case.step(&[t, hv], &r.bf16s(t * hv)));
        let gate = case.step(&[t, hv * dv], &r.bf16s(t * hv * dv));
        let seq_rows = case.step(&[s + 1], &rows);
        let (state_read, state_write) = (case.step(&[s], &reads), case.step(&[t], &writes));

        let qkv = case.scratch(&[t, c]);
        case.launch(CausalConv1d { x, weight, seq_rows, state_read, state_write, state: conv_state, out: qkv });
        let (decay, beta) = (case.scratch(&[t, hv]), case.scratch(&[t, hv]));
        case.launch(DeltaGates { a, b, a_log, dt_bias, decay, beta });
        let out = case.scratch(&[t, hv * dv]);
        case.launch(GatedDeltaRule {
            qkv, decay, beta, seq_rows, state_read, state_write, state, out,
            key_heads, l2_eps: 1e-6, scale: 0.125,
        });
        let normed = case.scratch(&[t, hv * dv]);
        case.launch(GatedRmsNorm { x: out, gate, weight: norm, out: normed, eps: 1e-6 });
        case.check_fused(Layerlet::GdnLayer);
    }

    #[test]
    fn attention_layer(
        t in 1..12usize,
        s in 1..4usize,
        groups in 1..3usize,
        per_group in 1..4usize,
        half in 1..9usize,
        rest in 0..20usize,
        page_size in prop_oneof![Just(1usize), Just(7), Just(64)],
        before in prop_oneof![0..5usize, 60..70usize, Just(130)],
        seed in any::<u32>(),
    ) {
        let (mut case, mut r) = (Case::new(), Random::new(seed));
        let rows = r.sequence_rows(t, s);
        let dim = 2 * half + rest;
        let most = before + t;
        let per_seq = most.div_ceil(page_size);
        let pages = s * per_seq + 1;
        let heads = groups * per_group;
        let (q_weight, k_weight) = (case.weight(&[dim], &r.f32s(dim)), case.weight(&[dim], &r.f32s(dim)));
        let table = case.weight(&[most, 2, half], &r.bf16s(most * 2 * half));
        let cache = pages * page_size * groups * dim;
        let k_cache = case.state(&[pages, page_size, groups, dim], &r.bf16s(cache));
        let v_cache = case.state(&[pages, page_size, groups, dim], &r.bf16s(cache));
        let q_gate = case.step(&[t, 2 * heads * dim], &r.bf16s(t * 2 * heads * dim));
        let k = case.step(&[t, groups * dim], &r.bf16s(t * groups * dim));
        let v = case.step(&[t, groups * dim], &r.bf16s(t * groups * dim));
        let sequence = r.row_seq(&rows, t);
        let at: Vec<u32> = (0..t).map(|row| match sequence[row] {
            NONE => 0,
            s => (before + row) as u32 - rows[s as usize],
        }).collect();
        let positions = case.step(&[t], &at);
        let row_seq = case.step(&[t], &sequence);
        let named = r.distinct(s * per_seq, pages);
        let page_table = case.step(&[s, per_seq], &named);

        let (eps, offset) = (1e-6, WeightOffset::One);
        let q_normed = case.scratch(&[t, heads * dim]);
        case.launch(RmsNorm { x: q_gate, weight: q_weight, out: q_normed, eps, offset, stride: 2 * dim });
        let k_normed = case.scratch(&[t, groups * dim]);
        case.launch(RmsNorm { x: k, weight: k_weight, out: k_normed, eps, offset, stride: dim });
        let q = case.scratch(&[t, heads * dim]);
        case.launch(Rope { x: q_normed, positions, table, out: q, head_dim: dim });
        let k = case.scratch(&[t, groups * dim]);
        case.launch(Rope { x: k_normed, positions, table, out: k, head_dim: dim });
        case.launch(KvAppend { k, v, positions, row_seq, page_table, k_cache, v_cache });
        let out = case.scratch(&[t, heads * dim]);
        case.launch(PagedAttention {
            q, q_gate, k_cache, v_cache, positions, row_seq, page_table, out, scale: 0.25,
        });
        case.check_fused(Layerlet::AttentionLayer);
    }

    #[test]
    fn lm_head_argmax(
        t in rows(), outs in rows(), vocab in prop_oneof![width(), 250..260usize, Just(600)],
        h in width(), seed in any::<u32>(),
    ) {
        let (mut case, mut r) = (Case::new(), Random::new(seed));
        let mut rows = r.bf16s(vocab * h);
        // Equal rows tie, and NaN rows lose.
        for v in 1..vocab {
            if r.chance(3) {
                rows.copy_within((v - 1) * h..v * h, v * h);
            }
        }
        let weight = case.weight(&[vocab, h], &rows);
        let x = case.step(&[t, h], &r.bf16s(t * h));
        let out: Vec<u32> = (0..outs).map(|_| if r.chance(5) { NONE } else { r.below(t) as u32 }).collect();
        let out_rows = case.step(&[outs], &out);
        let logits = case.scratch(&[outs, vocab]);
        case.launch(LmHead { x, out_rows, weight, logits });
        let tokens = case.scratch(&[outs]);
        case.launch(Argmax { logits, out_rows, tokens });
        case.check_fused(Layerlet::LmHeadArgmax);
    }
}

/// A slot that two rows write is refused by the fused kernel as by its stages.
#[test]
fn a_fused_launch_refuses_what_its_stages_refuse() {
    let (mut case, mut r) = (Case::new(), Random::new(1));
    let k_cache = case.state(&[1, 4, 1, 2], &r.bf16s(8));
    let v_cache = case.state(&[1, 4, 1, 2], &r.bf16s(8));
    let weight = case.step(&[2], &r.f32s(2));
    let table = case.step(&[4, 2, 1], &r.bf16s(8));
    let q_gate = case.step(&[2, 4], &r.bf16s(8));
    let k = case.step(&[2, 2], &r.bf16s(4));
    let v = case.step(&[2, 2], &r.bf16s(4));
    let positions = case.step(&[2], &[1u32, 1]);
    let row_seq = case.step(&[2], &[0u32, 0]);
    let page_table = case.step(&[1, 1], &[0u32]);
    let (eps, offset) = (1e-6, WeightOffset::One);
    let normed = [case.scratch(&[2, 2]), case.scratch(&[2, 2])];
    let roped = [case.scratch(&[2, 2]), case.scratch(&[2, 2])];
    case.launch(RmsNorm {
        x: q_gate,
        weight,
        out: normed[0],
        eps,
        offset,
        stride: 4,
    });
    case.launch(RmsNorm {
        x: k,
        weight,
        out: normed[1],
        eps,
        offset,
        stride: 2,
    });
    for (x, out) in normed.into_iter().zip(roped) {
        case.launch(Rope {
            x,
            positions,
            table,
            out,
            head_dim: 2,
        });
    }
    case.launch(KvAppend {
        k: roped[1],
        v,
        positions,
        row_seq,
        page_table,
        k_cache,
        v_cache,
    });
    let out = case.scratch(&[2, 2]);
    case.launch(PagedAttention {
        q: roped[0],
        q_gate,
        k_cache,
        v_cache,
        positions,
        row_seq,
        page_table,
        out,
        scale: 1.0,
    });
    case.check_fused(Layerlet::AttentionLayer);
    assert!(
        case.refusal()
            .contains("a place that no other row of the step writes")
    );
}
