//! Two ranks give the bytes of one: W8A8 layers cut by K with i32 sums, bf16 layers cut by output.

mod small_model;

use layerlet_core::backend::Place;
use layerlet_core::buffer::Role;
use layerlet_core::launch::Launch;
use layerlet_core::plan::*;
use layerlet_core::reference::Reference;
use small_model::{config, ids, shape, weight};
use std::collections::BTreeMap;

fn spec(format: LinearFormat) -> ModelSpec {
    let mut config = config();
    // Two ranks halve each of these.
    (config.vocab, config.mtp_layers) = (90, 0);
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
    let modules = (0..2).flat_map(|n| {
        let mixer = kinds.map(|k| format!("layers.{n}.{k}"));
        mixer
            .into_iter()
            .chain(moe.map(|k| format!("layers.{n}.mlp.{k}")))
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

/// Logits of a prefill and of a decode step, as every rank has them.
fn run(format: LinearFormat, ranks: usize, fault: bool) -> (Vec<Vec<u8>>, usize) {
    let spec = spec(format);
    let whole = ModelLayout::new(spec.clone(), CAPACITY).unwrap();
    let layouts = (0..ranks)
        .map(|rank| ModelLayout::of_rank(spec.clone(), CAPACITY, Split { rank, ranks }).unwrap());
    let mut group = Ranks::open(layouts.collect(), &Reference).unwrap();
    for rank in 0..ranks {
        let (layout, instance) = group.rank(rank);
        for (id, decl) in layout
            .table()
            .clone()
            .iter()
            .filter(|(_, d)| d.role == Role::Weight)
        {
            let full = whole
                .table()
                .get(whole.table().find(&decl.name).unwrap())
                .unwrap();
            let bytes = match decl.name.as_str() {
                "rope.table" => {
                    bytemuck::cast_slice(&rope_table(&spec.config.attention, 64)).to_vec()
                }
                _ => weight(full),
            };
            let held = if fault { 0 } else { rank };
            let part = cut_weight(&spec, Split { rank: held, ranks }, full, &bytes);
            assert_eq!(part.len(), decl.bytes(), "{}", decl.name);
            instance.write(Place::Model(id), 0, &part).unwrap();
        }
    }
    let tokens: Vec<u32> = ids(30, 3).iter().map(|id| id % 90).collect();
    let mut logits = Vec::new();
    let mut collectives = 0;
    for (start, count) in [(0usize, 29usize), (29, 1)] {
        let shape = shape(count + 1, 1, 1, 4);
        let plans = group.prepare(|layout| {
            let plan = forward(layout, &shape)?;
            Ok(plan)
        });
        let plans = plans.unwrap();
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
        collectives = forward(layout, &shape)
            .unwrap()
            .launches
            .iter()
            .filter(|l| is_collective(l))
            .count();
        let input = StepInput::new(layout, &shape, &[step]).unwrap();
        for (name, bytes) in input.buffers() {
            group.write(&plans, name, bytes).unwrap();
        }
        group.run(&plans).unwrap();
        for rank in 0..ranks {
            logits.push(group.read(&plans, rank, "logits").unwrap());
        }
    }
    (logits, collectives)
}

fn is_collective(launch: &Launch) -> bool {
    matches!(
        launch,
        Launch::AllReduceMax(_) | Launch::AllReduceSum(_) | Launch::AllGatherColumns(_)
    )
}

#[test]
fn two_ranks_equal_one() {
    for format in [LinearFormat::Bf16, LinearFormat::W8A8] {
        let (one, none) = run(format, 1, false);
        let (two, some) = run(format, 2, false);
        assert!(none == 0 && some > 8, "{none} and {some} collectives");
        for step in 0..2 {
            assert!(
                two[2 * step] == one[step] && two[2 * step + 1] == one[step],
                "{format:?}, step {step}"
            );
        }
        let (faulty, _) = run(format, 2, true);
        assert!(
            faulty[0] != one[0],
            "a rank with another's weights must show"
        );
    }
}

#[test]
fn ranks_that_do_not_divide_are_refused() {
    let refused = ModelLayout::of_rank(
        spec(LinearFormat::Bf16),
        CAPACITY,
        Split { rank: 0, ranks: 3 },
    )
    .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "num_key_value_heads is 2, expected a multiple of 3 ranks"
    );
    let refused = ModelLayout::of_rank(
        spec(LinearFormat::Bf16),
        CAPACITY,
        Split { rank: 2, ranks: 2 },
    )
    .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "rank is 2, expected below the number of ranks, 2"
    );
}
