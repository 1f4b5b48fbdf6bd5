//! What a step moves and computes lies in the range of its plan, and each fact about the step closes its part.

mod common;
mod small_model;

use layerlet_core::buffer::Role;
use layerlet_core::launch::{Launch, Layerlet};
use layerlet_core::plan::*;
use layerlet_core::work::{Occupancy, Routed, Work};

const TOKENS: usize = 6;

fn plan() -> Plan {
    let shape = StepShape {
        tokens: TOKENS,
        sequences: 2,
        outputs: 2,
        pages_per_sequence: 3,
        head: Head::Argmax,
        verify: false,
        trace: false,
    };
    forward(&small_model::layout(16), &shape).unwrap()
}

/// Two sequences of three rows, one of them fresh; the routes of all layers lead to so many experts.
fn step(plan: &Plan, experts: u64) -> Occupancy {
    let pairs = (TOKENS * small_model::config().moe.top_k) as u64;
    let routes = (0..2).map(|layer| {
        let offsets = plan.buffers.find(&format!("layers.{layer}.expert_offsets"));
        (offsets.unwrap(), Routed { pairs, experts })
    });
    Occupancy {
        rows: TOKENS as u64,
        state_reads: 1,
        state_writes: 2,
        positions: 3 + 20,
        routes: routes.collect(),
    }
}

fn total(plan: &Plan, step: &Occupancy) -> Work {
    plan.work(step).into_iter().sum()
}

#[test]
fn every_launch_stays_in_its_range() {
    let plan = plan();
    for plan in [plan.clone(), fuse(&plan, &Layerlet::ALL)] {
        let work = plan.work(&step(&plan, 5));
        for (work, (name, traffic)) in work.iter().zip(plan.cost().launches) {
            let range = traffic.min..=traffic.max;
            assert!(range.contains(&work.bytes), "{name}: {work:?} in {range:?}");
        }
    }
}

#[test]
fn fusing_saves_bytes_and_no_multiply_adds() {
    let plan = plan();
    let fused = fuse(&plan, &Layerlet::ALL);
    let (apart, together) = (
        total(&plan, &step(&plan, 5)),
        total(&fused, &step(&plan, 5)),
    );
    assert!(together.bytes < apart.bytes);
    let multiply_adds = |w: Work| (w.int8_multiply_adds, w.bf16_multiply_adds);
    assert_eq!(multiply_adds(together), multiply_adds(apart));
    assert!(apart.int8_multiply_adds > 0 && apart.bf16_multiply_adds > 0);
}

/// One more expert, slot or position adds its own bytes, fused or not.
#[test]
fn each_fact_has_its_price() {
    let plan = plan();
    let config = small_model::config();
    for plan in [plan.clone(), fuse(&plan, &Layerlet::ALL)] {
        let base = step(&plan, 5);
        let price = |changed: Occupancy| total(&plan, &changed).bytes - total(&plan, &base).bytes;
        // int8 experts in layer 0, bf16 ones in layer 1.
        let (n, k) = (2 * config.moe.intermediate, config.hidden);
        let (elements, rows) = (n * k + k * n / 2, n + k);
        let expert = (elements + 4 * rows) + 2 * elements;
        assert_eq!(price(step(&plan, 6)), expert as u64);
        let state = |name: &str| {
            let decl = plan.buffers.iter().find(|(_, d)| d.name.ends_with(name));
            let (_, decl) = decl.unwrap();
            assert_eq!(decl.role, Role::State);
            (decl.bytes() / small_model::SLOTS) as u64
        };
        let slot = state("conv_state") + state("ssm_state");
        let reads = Occupancy {
            state_reads: 2,
            ..base.clone()
        };
        assert_eq!(price(reads), slot);
        let writes = Occupancy {
            state_writes: 4,
            ..base.clone()
        };
        assert_eq!(price(writes), 2 * slot);
        let a = &config.attention;
        let position = 2 * 2 * a.kv_heads * a.head_dim;
        let positions = Occupancy {
            positions: base.positions + 7,
            ..base.clone()
        };
        assert_eq!(price(positions), 7 * position as u64);
    }
}

/// A fused attention layer reads the pages that its own append has touched, and stores its result.
#[test]
fn fused_attention_reads_its_pages() {
    let plan = fuse(&plan(), &Layerlet::ALL);
    let name = Layerlet::AttentionLayer.name();
    let launch = plan.launches.iter().find(|l| l.name() == name);
    let Some(launch @ Launch::Fused(fused)) = launch else {
        panic!("no {name}")
    };
    let a = &small_model::config().attention;
    let pages = 2 * 3 * 16 * 2 * 2 * (a.kv_heads * a.head_dim) as u64;
    let range = launch.traffic(&plan.buffers);
    let appended = (TOKENS * 2 * 2 * a.kv_heads * a.head_dim) as u64;
    assert_eq!(range.max - range.min, pages + appended);
    let out = fused.stages.last().unwrap().operands().pop().unwrap();
    assert!(range.min > plan.buffers.get(out.buffer).unwrap().bytes() as u64);
}
