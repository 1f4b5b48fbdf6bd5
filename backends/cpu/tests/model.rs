//! A small model, step after step, op by op on the reference and fused on this backend: the same
//! outputs and the same state, whatever the formats, the threads and what is traced.

mod common;

use common::small_model::{config, fill, formats};
use layerlet_core::backend::{Backend, Place};
use layerlet_core::buffer::Role;
use layerlet_core::launch::Layerlet;
use layerlet_core::plan::*;
use layerlet_core::reference::Reference;
use layerlet_cpu::{Cpu, Level};

/// Prefill of two sequences; then a decode, a chunk with a state kept after every row, a new sequence.
fn steps() -> Vec<Vec<SequenceStep<'static>>> {
    let fresh = SequenceStep {
        tokens: &[],
        start: 0,
        pages: &[],
        state_read: None,
        state_writes: &[],
        outputs: &[],
        sampling: None,
    };
    vec![
        vec![
            SequenceStep {
                tokens: &[5, 9, 130, 0, 77, 5, 21],
                pages: &[6, 2],
                state_writes: &[(6, 0)],
                outputs: &[6],
                ..fresh
            },
            SequenceStep {
                tokens: &[1, 2, 3],
                pages: &[0, 3],
                state_writes: &[(2, 4)],
                outputs: &[0, 2],
                ..fresh
            },
        ],
        vec![
            SequenceStep {
                tokens: &[44],
                start: 7,
                pages: &[6, 2],
                state_read: Some(0),
                state_writes: &[(0, 0)],
                outputs: &[0],
                ..fresh
            },
            SequenceStep {
                tokens: &[8, 8, 100],
                start: 3,
                pages: &[0, 3],
                state_read: Some(4),
                state_writes: &[(0, 1), (1, 2), (2, 4)],
                outputs: &[0, 1, 2],
                ..fresh
            },
            SequenceStep {
                tokens: &[60, 61],
                pages: &[5],
                state_writes: &[(1, 3)],
                ..fresh
            },
        ],
    ]
}

/// Runs all steps; returns outputs of each step and state at the end, by name.
fn run(
    backend: &dyn Backend,
    layout: &ModelLayout,
    plan: &Plan,
    shape: &StepShape,
) -> Vec<(String, Vec<u8>)> {
    let mut instance = backend.open(layout.table()).expect("host memory");
    fill(instance.as_mut(), layout);
    let id = instance.prepare(plan).expect("a valid plan");
    let mut results = Vec::new();
    for (n, step) in steps().iter().enumerate() {
        let input = StepInput::new(layout, shape, step).expect("a valid step");
        for (name, bytes) in input.buffers() {
            let buffer = plan.buffers.find(name).expect("a step buffer");
            instance
                .write(Place::Plan(id, buffer), 0, bytes)
                .expect("step data");
        }
        instance.poison(id, 0xa5).expect("a plan");
        instance.run(id, usize::MAX).expect("a step");
        for (buffer, decl) in plan.buffers.iter().filter(|(_, d)| d.role == Role::Output) {
            let mut bytes = vec![0; decl.bytes()];
            instance
                .read(Place::Plan(id, buffer), 0, &mut bytes)
                .expect("an output");
            results.push((format!("step {n}: {}", decl.name), bytes));
        }
    }
    for (buffer, decl) in layout.table().iter().filter(|(_, d)| d.role == Role::State) {
        let mut bytes = vec![0; decl.bytes()];
        instance
            .read(Place::Model(buffer), 0, &mut bytes)
            .expect("state");
        results.push((decl.name.clone(), bytes));
    }
    results
}

#[test]
fn a_model_gives_the_same_bytes_as_the_reference() {
    for (kind, trace) in [(0, false), (1, false), (1, true), (2, false), (2, true)] {
        let spec = ModelSpec {
            config: config(),
            formats: formats(kind),
        };
        let capacity = Capacity {
            state_slots: 5,
            kv_pages: 8,
            page_size: 7,
            max_positions: 64,
        };
        let layout = ModelLayout::new(spec, capacity).expect("a small model");
        let shape = StepShape {
            tokens: 12,
            sequences: 4,
            outputs: 6,
            pages_per_sequence: 2,
            head: Head::Argmax,
            verify: false,
            trace,
        };
        let plan = forward(&layout, &shape).expect("a plan");
        let expected = run(&Reference, &layout, &plan, &shape);
        let fused = fuse(&plan, &Layerlet::ALL);
        let levels = Level::available().into_iter();
        let cpus = levels.flat_map(|level| {
            let cpus = [Cpu::with_threads(1), Cpu::with_threads(3).inline_below(0)];
            cpus.map(|cpu| cpu.at_level(level))
        });
        for cpu in cpus {
            for plan in [&plan, &fused] {
                let found = run(&cpu, &layout, plan, &shape);
                for ((name, expected), (_, found)) in expected.iter().zip(&found) {
                    assert!(expected == found, "formats {kind}: {name} differs");
                }
            }
        }
    }
}
