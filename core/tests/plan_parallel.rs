//! Ranks give the bytes of one device, whether they share heads and columns, whole experts or both: W8A8 layers cut by K with
//! i32 sums, bf16 layers cut by output, experts' rows exchanged.

mod small_model;

use layerlet_core::backend::Place;
use layerlet_core::buffer::{BufferDecl, Role};
use layerlet_core::launch::Launch;
use layerlet_core::numerics::{bf16, round_bf16};
use layerlet_core::plan::*;
use layerlet_core::reference::Reference;
use small_model::{config, ids, shape, weight};
use std::collections::BTreeMap;

const MODES: [Parallelism; 3] = [
    Parallelism::Tensor,
    Parallelism::TensorExpert,
    Parallelism::Expert,
];

const FORMATS: [LinearFormat; 2] = [LinearFormat::Bf16, LinearFormat::W8A8];

fn spec(format: LinearFormat) -> ModelSpec {
    let mut config = config();
    // Four ranks divide each of these.
    (config.vocab, config.moe.experts) = (92, 12);
    (config.attention.heads, config.attention.kv_heads) = (8, 4);
    (config.delta_net.key_heads, config.delta_net.value_heads) = (4, 12);
    let kinds = [
        "self_attn.q_proj",
        "self_attn.o_proj",
        "linear_attn.in_proj_qkv",
        "linear_attn.out_proj",
    ];
    let moe = [
        "shared_expert.gate_up_proj",
        "shared_expert.down_proj",
        "experts.gate_up_proj",
        "experts.down_proj",
    ];
    let layers = ["layers.0", "layers.1", "mtp.layers.0"];
    let modules = layers.iter().flat_map(|layer| {
        let mixer = kinds.map(|k| format!("{layer}.{k}"));
        mixer
            .into_iter()
            .chain(moe.map(|k| format!("{layer}.mlp.{k}")))
    });
    ModelSpec {
        config,
        formats: modules.map(|m| (m, format)).collect::<BTreeMap<_, _>>(),
    }
}

const CAPACITY: Capacity = Capacity {
    state_slots: 3,
    kv_pages: 9,
    page_size: 8,
    max_positions: 64,
};

/// A prompt in two chunks, then two tokens: where each step starts and how many tokens it has.
const STEPS: [(usize, usize); 4] = [(0, 11), (11, 18), (29, 1), (30, 1)];

/// Which experts the router of the random model sends its tokens to.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Routes {
    /// Wherever random weights lead.
    Spread,
    /// Every token to experts 0, 1 and 2: all logits tie.
    First,
    /// Two of every token's experts among 0 to 2, one of 10 and 11; none between.
    Ends,
}

impl Routes {
    fn router(self, mut weight: Vec<bf16>, experts: usize) -> Vec<bf16> {
        let width = weight.len() / experts;
        let kept: &[usize] = match self {
            Routes::Spread => return weight,
            Routes::First => &[],
            Routes::Ends => &[0, 10],
        };
        for expert in 0..experts {
            let (before, row) = weight.split_at_mut(expert * width);
            let row = &mut row[..width];
            match expert.checked_sub(1).filter(|e| kept.contains(e)) {
                // The opposite of the expert before: one of the two has a positive logit.
                Some(twin) => {
                    let twin = &before[twin * width..][..width];
                    row.iter_mut()
                        .zip(twin)
                        .for_each(|(x, t)| *x = round_bf16(-t.to_f32()));
                }
                None if kept.contains(&expert) => {}
                None => row.fill(bf16::ZERO),
            }
        }
        weight
    }
}

#[derive(Clone, Copy, Debug)]
struct Case {
    format: LinearFormat,
    routes: Routes,
    parallelism: Parallelism,
    ranks: usize,
    /// Every rank holds the first one's weights.
    fault: bool,
}

impl Case {
    fn one(format: LinearFormat, routes: Routes) -> Case {
        Case {
            format,
            routes,
            parallelism: Parallelism::Tensor,
            ranks: 1,
            fault: false,
        }
    }

    fn split(self, rank: usize) -> Split {
        Split {
            rank,
            ranks: self.ranks,
            parallelism: self.parallelism,
        }
    }

    fn layout(self, rank: usize) -> ModelLayout {
        ModelLayout::of_rank(spec(self.format), CAPACITY, self.split(rank)).unwrap()
    }
}

/// What one rank has after [`STEPS`].
#[derive(Default)]
struct Outcome {
    /// By step.
    logits: Vec<Vec<u8>>,
    /// Rows of the rank's experts in the first layer, by step.
    expert_rows: Vec<u32>,
    state: BTreeMap<String, Vec<u8>>,
}

fn whole_weight(case: Case, decl: &BufferDecl) -> Vec<u8> {
    let spec = spec(case.format);
    match decl.name.as_str() {
        "rope.table" => bytemuck::cast_slice(&rope_table(&spec.config.attention, 64)).to_vec(),
        name if name.ends_with("mlp.gate.weight") => {
            let router = bytemuck::pod_collect_to_vec(&weight(decl));
            let router = case.routes.router(router, spec.config.moe.experts);
            bytemuck::cast_slice(&router).to_vec()
        }
        _ => weight(decl),
    }
}

fn open(case: Case) -> Ranks {
    let spec = spec(case.format);
    let whole = ModelLayout::new(spec.clone(), CAPACITY).unwrap();
    let layouts = (0..case.ranks).map(|rank| case.layout(rank));
    let mut group = Ranks::open(layouts.collect(), &Reference).unwrap();
    for rank in 0..case.ranks {
        let (layout, instance) = group.rank(rank);
        let table = layout.table().clone();
        for (id, decl) in table.iter().filter(|(_, d)| d.role == Role::Weight) {
            let full = whole.table().find(&decl.name).unwrap();
            let full = whole.table().get(full).unwrap();
            let held = if case.fault { 0 } else { rank };
            let part = cut_weight(&spec, case.split(held), full, &whole_weight(case, full));
            assert_eq!(part.len(), decl.bytes(), "{}", decl.name);
            instance.write(Place::Model(id), 0, &part).unwrap();
        }
    }
    group
}

fn run(case: Case) -> Vec<Outcome> {
    let mut group = open(case);
    let tokens: Vec<u32> = ids(31, 3).iter().map(|id| id % 92).collect();
    let mut outcomes: Vec<Outcome> = (0..case.ranks).map(|_| Outcome::default()).collect();
    for (start, count) in STEPS {
        // One row more than there are tokens: it must stay inert.
        let shape = shape(count + 1, 1, 1, 4);
        let plans = group.prepare(|layout| forward(layout, &shape)).unwrap();
        let step = SequenceStep {
            tokens: &tokens[start..start + count],
            start: start as u32,
            pages: &[5, 1, 3, 2],
            state_read: (start > 0).then_some(1),
            state_writes: &[(count - 1, 1)],
            outputs: &[count - 1],
            sampling: None,
        };
        let (layout, _) = group.rank(0);
        let input = StepInput::new(layout, &shape, &[step]).unwrap();
        for (name, bytes) in input.buffers() {
            group.write(&plans, name, bytes).unwrap();
        }
        group.run(&plans).unwrap();
        for (rank, outcome) in outcomes.iter_mut().enumerate() {
            outcome
                .logits
                .push(group.read(&plans, rank, "logits").unwrap());
            let split = case.split(rank);
            let name = match split.expert_ranks() {
                1 => "layers.0.expert_offsets",
                _ => "layers.0.expert_offsets.own",
            };
            let offsets = group.read(&plans, rank, name).unwrap();
            let offsets: Vec<u32> = bytemuck::pod_collect_to_vec(&offsets);
            outcome.expert_rows.push(offsets[offsets.len() - 1]);
        }
    }
    for (rank, outcome) in outcomes.iter_mut().enumerate() {
        outcome.state = state(&mut group, rank);
    }
    outcomes
}

fn state(group: &mut Ranks, rank: usize) -> BTreeMap<String, Vec<u8>> {
    let (layout, instance) = group.rank(rank);
    let table = layout.table().clone();
    // The draft head's caches stay as they were.
    let of_model = |d: &BufferDecl| d.role == Role::State && !d.name.starts_with("mtp.");
    let states = table.iter().filter(|(_, d)| of_model(d));
    states
        .map(|(id, decl)| {
            let mut bytes = vec![0; decl.bytes()];
            instance.read(Place::Model(id), 0, &mut bytes).unwrap();
            (decl.name.clone(), bytes)
        })
        .collect()
}

/// A rank's heads of one device's state.
fn cut_state(case: Case, rank: usize, decl: &BufferDecl, bytes: &[u8]) -> Vec<u8> {
    let d = spec(case.format).config.delta_net;
    let (keys, values) = (d.key_heads * d.key_dim, d.value_heads * d.value_dim);
    let blocks = match decl.name.rsplit('.').next() {
        Some("conv_state") => vec![keys, keys, values],
        Some("ssm_state") => vec![decl.shape[1..].iter().product()],
        _ => vec![decl.shape[2] * decl.shape[3]],
    };
    let (size, ranks) = (decl.dtype.size(), case.split(rank).tensor_ranks());
    let mut part = Vec::new();
    for row in bytes.chunks_exact(blocks.iter().sum::<usize>() * size) {
        let mut from = 0;
        for block in &blocks {
            let each = block / ranks;
            let start = from + (rank % ranks) * each;
            part.extend_from_slice(&row[start * size..(start + each) * size]);
            from += block;
        }
    }
    part
}

fn assert_equal(case: Case, one: &Outcome, ranks: &[Outcome]) {
    let whole = ModelLayout::new(spec(case.format), CAPACITY).unwrap();
    assert_eq!(one.state.len(), 4, "two states, two caches");
    for (rank, found) in ranks.iter().enumerate() {
        for (step, (found, expected)) in found.logits.iter().zip(&one.logits).enumerate() {
            assert!(
                found == expected,
                "logits of step {step}, rank {rank}, {case:?}"
            );
        }
        for (name, bytes) in &one.state {
            let decl = whole
                .table()
                .get(whole.table().find(name).unwrap())
                .unwrap();
            let expected = cut_state(case, rank, decl, bytes);
            assert!(
                found.state[name] == expected,
                "{name}, rank {rank}, {case:?}"
            );
        }
    }
}

#[test]
fn ranks_equal_one_device() {
    for (format, routes) in FORMATS
        .map(|f| [(f, Routes::Spread), (f, Routes::Ends)])
        .concat()
    {
        let one = run(Case::one(format, routes)).remove(0);
        assert!(one.state.values().all(|s| s.iter().any(|&b| b != 0)));
        for (parallelism, ranks) in MODES.map(|m| [(m, 1), (m, 2), (m, 4)]).concat() {
            let case = Case {
                parallelism,
                ranks,
                ..Case::one(format, routes)
            };
            assert_equal(case, &one, &run(case));
        }
    }
}

#[test]
fn a_rank_with_anothers_weights_shows() {
    for (format, parallelism) in FORMATS.map(|f| MODES.map(|m| (f, m))).concat() {
        let case = Case {
            parallelism,
            ranks: 2,
            fault: true,
            ..Case::one(format, Routes::Spread)
        };
        let one = run(Case::one(format, Routes::Spread)).remove(0);
        assert!(run(case)[0].logits[0] != one.logits[0], "{case:?}");
    }
}

/// Skewed routes: ranks that have no row at all, and one that has them all.
#[test]
fn ranks_without_rows_change_nothing() {
    for (format, parallelism) in FORMATS
        .map(|f| MODES.map(|m| (f, m))[1..].to_vec())
        .concat()
    {
        // By rank, for each token.
        for (routes, expected) in [(Routes::First, [3, 0, 0, 0]), (Routes::Ends, [2, 0, 0, 1])] {
            let case = Case {
                parallelism,
                ranks: 4,
                ..Case::one(format, routes)
            };
            let found = run(case);
            for (step, (_, tokens)) in STEPS.iter().enumerate() {
                let rows: Vec<u32> = found.iter().map(|o| o.expert_rows[step]).collect();
                assert_eq!(rows, expected.map(|n| n * *tokens as u32), "{case:?}");
            }
            let one = run(Case::one(format, routes)).remove(0);
            assert_equal(case, &one, &found);
        }
    }
}

/// Tokens of a chain of drafts and the hidden state of the last, as every rank has them.
fn drafts(case: Case) -> Vec<Vec<u8>> {
    let mut group = open(case);
    let shape = MtpShape {
        step: shape(8, 1, 1, 4),
        drafts: 3,
    };
    let plans = group.prepare(|layout| mtp(layout, &shape)).unwrap();
    let tokens = ids(7, 5);
    let step = SequenceStep {
        tokens: &tokens,
        start: 0,
        pages: &[5, 1],
        state_read: None,
        state_writes: &[],
        outputs: &[6],
        sampling: None,
    };
    let hidden = ids(7 * config().hidden, 9);
    let hidden: Vec<bf16> = hidden
        .iter()
        .map(|&n| round_bf16(n as f32 / 30.0 - 1.5))
        .collect();
    let (layout, _) = group.rank(0);
    let input = StepInput::for_mtp(layout, &shape, &[step], &hidden).unwrap();
    for (name, bytes) in input.buffers() {
        group.write(&plans, name, bytes).unwrap();
    }
    group.run(&plans).unwrap();
    let shown = [
        "mtp.0.tokens",
        "mtp.1.tokens",
        "mtp.2.tokens",
        "mtp.2.hidden",
    ];
    let of_rank = |rank| {
        shown
            .map(|name| group.read(&plans, rank, name).unwrap())
            .concat()
    };
    (0..case.ranks).map(of_rank).collect()
}

#[test]
fn ranks_draft_what_one_device_drafts() {
    for (format, parallelism) in FORMATS.map(|f| MODES.map(|m| (f, m))).concat() {
        let one = Case::one(format, Routes::Spread);
        let expected = drafts(one).remove(0);
        let case = Case {
            parallelism,
            ranks: 4,
            ..one
        };
        for (rank, found) in drafts(case).iter().enumerate() {
            assert!(*found == expected, "rank {rank}, {case:?}");
        }
    }
}

fn weight_bytes(layout: &ModelLayout, wanted: impl Fn(&str) -> bool) -> usize {
    let weights = layout
        .table()
        .iter()
        .filter(|(_, d)| d.role == Role::Weight);
    weights
        .filter(|(_, d)| wanted(&d.name))
        .map(|(_, d)| d.bytes())
        .sum()
}

#[test]
fn a_rank_holds_its_part_of_the_experts() {
    let of_experts = |name: &str| name.contains(".experts.");
    let other = |name: &str| !of_experts(name);
    for (format, ranks) in FORMATS.map(|f| [(f, 2), (f, 4)]).concat() {
        let whole = Case::one(format, Routes::Spread).layout(0);
        let (experts, rest) = (
            weight_bytes(&whole, of_experts),
            weight_bytes(&whole, other),
        );
        for (parallelism, rank) in MODES.map(|m| [(m, 0), (m, ranks - 1)])[1..].concat() {
            let case = Case {
                parallelism,
                ranks,
                ..Case::one(format, Routes::Spread)
            };
            let layout = case.layout(rank);
            assert_eq!(
                weight_bytes(&layout, of_experts) * ranks,
                experts,
                "{case:?}"
            );
            let all_the_rest = weight_bytes(&layout, other) == rest;
            assert_eq!(all_the_rest, parallelism == Parallelism::Expert, "{case:?}");
            let table = layout.table();
            for (_, decl) in table.iter().filter(|(_, d)| of_experts(&d.name)) {
                let full = whole
                    .table()
                    .get(whole.table().find(&decl.name).unwrap())
                    .unwrap();
                assert_eq!(decl.shape[0] * ranks, full.shape[0], "{}", decl.name);
                assert_eq!(decl.shape[1..], full.shape[1..], "{}", decl.name);
            }
        }
    }
}

fn collectives(case: Case) -> BTreeMap<&'static str, usize> {
    let plan = forward(&case.layout(0), &shape(4, 1, 1, 4)).unwrap();
    let mut found = BTreeMap::new();
    for launch in &plan.launches {
        let between_ranks = matches!(
            launch,
            Launch::AllReduceMax(_)
                | Launch::AllReduceSum(_)
                | Launch::AllGatherColumns(_)
                | Launch::ExchangeSlotRows(_)
        );
        if between_ranks {
            *found.entry(launch.name()).or_default() += 1;
        }
    }
    found
}

#[test]
fn a_plan_exchanges_what_its_split_needs() {
    let check = |parallelism, ranks, expected: &[(&'static str, usize)]| {
        let case = Case {
            parallelism,
            ranks,
            ..Case::one(LinearFormat::W8A8, Routes::Spread)
        };
        let expected = expected.iter().copied().collect();
        assert_eq!(
            collectives(case),
            expected,
            "{parallelism:?}, {ranks} ranks"
        );
    };
    // Two layers, each with a mixer and a shared expert cut by K; the columns of the logits.
    let (max, sum) = (("all_reduce_max", 4), ("all_reduce_sum", 4));
    let columns = "all_gather_columns";
    check(Parallelism::Tensor, 2, &[max, sum, (columns, 5)]);
    let exchange = ("exchange_slot_rows", 2);
    check(
        Parallelism::TensorExpert,
        2,
        &[max, sum, (columns, 1), exchange],
    );
    check(Parallelism::Expert, 2, &[exchange]);
    let whole = Case::one(LinearFormat::W8A8, Routes::Spread);
    for parallelism in MODES {
        check(parallelism, 1, &[]);
        let alone = Case {
            parallelism,
            ..whole
        };
        let plan = |case: Case| forward(&case.layout(0), &shape(4, 1, 1, 4)).unwrap();
        assert_eq!(plan(alone), plan(whole), "{parallelism:?}");
    }
}

#[test]
fn ranks_that_do_not_divide_are_refused() {
    let refusal = |change: fn(&mut ModelSpec), parallelism, rank, ranks| {
        let mut spec = spec(LinearFormat::Bf16);
        change(&mut spec);
        let split = Split {
            rank,
            ranks,
            parallelism,
        };
        ModelLayout::of_rank(spec, CAPACITY, split)
            .map_err(|e| e.to_string())
            .err()
    };
    let [tensor, both, experts] = MODES;
    let message = |text: &str| Some(text.to_string());
    assert_eq!(
        refusal(|_| {}, tensor, 0, 3),
        message("num_key_value_heads is 4, expected a multiple of 3 ranks")
    );
    assert_eq!(
        refusal(|_| {}, tensor, 2, 2),
        message("rank is 2, expected below the number of ranks, 2")
    );
    let ten = |spec: &mut ModelSpec| spec.config.moe.experts = 10;
    let uneven = message("num_experts is 10, expected a multiple of 4 ranks");
    assert_eq!(refusal(ten, both, 1, 4), uneven);
    assert_eq!(refusal(ten, experts, 1, 4), uneven);
    assert_eq!(refusal(ten, tensor, 1, 4), None);
    // Where only experts are shared out, ranks may outnumber the key-value heads and read one table twice.
    let tied = |spec: &mut ModelSpec| spec.config.tied_embeddings = true;
    assert_eq!(refusal(tied, experts, 11, 12), None);
    assert_eq!(
        refusal(tied, both, 1, 2),
        message("ranks is 2, expected 1 where the head reads the embedding table")
    );
}
