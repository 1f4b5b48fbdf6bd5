//! A warm decode loop (step data in, run, token out) takes no memory, whatever the level and the threads.

mod common;

use common::small_model::{config, fill, formats};
use layerlet_core::backend::{Backend, Instance, Place, PlanId};
use layerlet_core::buffer::BufferId;
use layerlet_core::launch::Layerlet;
use layerlet_core::plan::*;
use layerlet_cpu::{Cpu, Level};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Steps before anything is counted: every buffer has grown by then.
const WARM: u32 = 3;

const STEPS: u32 = 24;

struct Decoder {
    instance: Box<dyn Instance>,
    plan: PlanId,
    tokens: BufferId,
    /// Step data of every step.
    inputs: Vec<Vec<(BufferId, Vec<u8>)>>,
}

impl Decoder {
    fn new(cpu: &Cpu, kind: usize) -> Decoder {
        let spec = ModelSpec {
            config: config(),
            formats: formats(kind),
        };
        let capacity = Capacity {
            state_slots: 2,
            kv_pages: 8,
            page_size: 16,
            max_positions: 128,
        };
        let layout = ModelLayout::new(spec, capacity).expect("a small model");
        let shape = StepShape {
            tokens: 2,
            sequences: 2,
            outputs: 2,
            pages_per_sequence: 4,
            head: Head::Argmax,
            verify: false,
            trace: false,
        };
        let plan = forward(&layout, &shape).expect("a plan");
        let plan = fuse(&plan, &Layerlet::ALL);
        let mut instance = cpu.open(layout.table()).expect("host memory");
        fill(instance.as_mut(), &layout);
        let id = instance.prepare(&plan).expect("a valid plan");
        let input = |n: u32| {
            let sequence = |slot: u32, pages: &'static [u32]| SequenceStep {
                tokens: &[7],
                start: n,
                pages,
                state_read: (n > 0).then_some(slot),
                state_writes: [&[(0, 0)], &[(0, 1)]][slot as usize],
                outputs: &[0],
                sampling: None,
            };
            let step = [sequence(0, &[0, 1, 2, 3]), sequence(1, &[4, 5, 6, 7])];
            let input = StepInput::new(&layout, &shape, &step).expect("a valid step");
            let place = |(name, bytes): (&str, &[u8])| {
                let buffer = plan.buffers.find(name).expect("a step buffer");
                (buffer, bytes.to_vec())
            };
            input.buffers().map(place).collect()
        };
        Decoder {
            instance,
            plan: id,
            tokens: plan.buffers.find("tokens").expect("an output"),
            inputs: (0..WARM + STEPS).map(input).collect(),
        }
    }

    fn step(&mut self, n: u32) -> [u8; 8] {
        for (buffer, bytes) in &self.inputs[n as usize] {
            let place = Place::Plan(self.plan, *buffer);
            self.instance.write(place, 0, bytes).expect("step data");
        }
        self.instance.run(self.plan, usize::MAX).expect("a step");
        let mut tokens = [0; 8];
        let place = Place::Plan(self.plan, self.tokens);
        self.instance.read(place, 0, &mut tokens).expect("tokens");
        tokens
    }
}

#[test]
fn a_warm_decode_loop_allocates_nothing() {
    // The counter itself: one vector is one allocation.
    let region = Region::new(ALLOCATOR);
    drop(std::hint::black_box(vec![1u8; 100]));
    assert_eq!(region.change().allocations, 1);
    for level in Level::available() {
        for (threads, kind) in [(1, 1), (2, 1), (3, 2), (2, 0)] {
            let cpu = Cpu::with_threads(threads).inline_below(0).at_level(level);
            let mut decoder = Decoder::new(&cpu, kind);
            (0..WARM).for_each(|n| {
                decoder.step(n);
            });
            let region = Region::new(ALLOCATOR);
            (WARM..WARM + STEPS).for_each(|n| {
                decoder.step(n);
            });
            let change = region.change();
            let taken = change.allocations + change.reallocations;
            assert_eq!(
                taken,
                0,
                "{}, {threads} threads, formats {kind}: {change:?}",
                level.name()
            );
        }
    }
}
