//! Ranks in lockstep against one device.

use super::walk::{Scene, result};
use crate::run::Written;
use crate::small_model::{ModelError, SLOTS, VOCAB};
use layerlet_core::backend::{Backend, BackendError, Place};
use layerlet_core::dtype::DType;
use layerlet_core::launch::Layerlet;
use layerlet_core::plan::*;

/// What ranks share out, among how many, and the name in the table.
pub const SHARED: [(Parallelism, usize, &str); 3] = [
    (Parallelism::Tensor, 2, "2 ranks, tensors"),
    (Parallelism::TensorExpert, 2, "2 ranks, tensors and experts"),
    (Parallelism::Expert, 4, "4 ranks, experts"),
];

/// Logits of the last row of each chunk of the first text, as every rank has them, under the same names
/// on any number of ranks.
pub fn walk(
    backend: &dyn Backend,
    scene: &Scene,
    whole: Split,
    fused: bool,
) -> Result<Vec<Vec<Written>>, ModelError> {
    let ranks = whole.ranks;
    let splits = (0..ranks).map(|rank| Split { rank, ..whole });
    let text = &scene.texts[0];
    let page_size = 8;
    let pages: Vec<u32> = (0..text.len().div_ceil(page_size) as u32).rev().collect();
    let capacity = Capacity {
        state_slots: SLOTS,
        kv_pages: pages.len(),
        page_size,
        max_positions: scene.spec.config.max_position,
    };
    let layouts = splits
        .clone()
        .map(|split| ModelLayout::of_rank(scene.spec.clone(), capacity, split))
        .collect::<Result<Vec<_>, _>>()?;
    let mut group = Ranks::open(layouts, backend)?;
    for split in splits {
        write_weights(&mut group, scene, split)?;
    }
    let mut found = vec![Vec::new(); ranks];
    let cut = text.len() - 1;
    for (n, rows) in [0..cut, cut..text.len()].into_iter().enumerate() {
        let count = rows.len();
        let shape = StepShape {
            tokens: count + 1,
            sequences: 1,
            outputs: 1,
            pages_per_sequence: pages.len(),
            head: Head::Logits,
            verify: false,
            trace: false,
        };
        let plans = group.prepare(|layout| {
            let plan = forward(layout, &shape)?;
            Ok(if fused {
                fuse(&plan, &Layerlet::ALL)
            } else {
                plan
            })
        })?;
        let step = SequenceStep {
            tokens: &text[rows.clone()],
            start: rows.start as u32,
            pages: &pages,
            state_read: (rows.start > 0).then_some(1),
            state_writes: &[(count - 1, 1)],
            outputs: &[count - 1],
            sampling: None,
        };
        let (layout, _) = group.rank(0);
        let input = StepInput::new(layout, &shape, &[step])?;
        for (name, bytes) in input.buffers() {
            group.write(&plans, name, bytes)?;
        }
        group.run(&plans)?;
        for (rank, found) in found.iter_mut().enumerate() {
            let bytes = group.read(&plans, rank, "logits")?;
            let name = format!("logits of step {n}");
            found.push(result(name, DType::Bf16, vec![1, VOCAB], bytes));
        }
    }
    Ok(found)
}

fn write_weights(group: &mut Ranks, scene: &Scene, split: Split) -> Result<(), ModelError> {
    let (layout, instance) = group.rank(split.rank);
    for (id, decl) in layout.table().iter() {
        let Some((whole, bytes)) = scene.weights.get(&decl.name) else {
            continue;
        };
        let part = cut_weight(&scene.spec, split, whole, bytes);
        if part.len() != decl.bytes() {
            let message = format!(
                "{}: rank {} gets {} bytes, expected {}",
                decl.name,
                split.rank,
                part.len(),
                decl.bytes()
            );
            let backend = "ranks".into();
            return Err(BackendError::Device { backend, message }.into());
        }
        instance.write(Place::Model(id), 0, &part)?;
    }
    Ok(())
}
