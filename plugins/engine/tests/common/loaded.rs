//! A checkpoint's weights as they land in a backend's memory.

use layerlet_core::backend::{Backend, Instance, Place};
use layerlet_core::buffer::Role;
use layerlet_core::plan::{Capacity, ModelLayout};
use layerlet_core::reference::Reference;
use layerlet_engine::checkpoint::Checkpoint;
use std::collections::BTreeMap;

/// The buffer that the host fills.
pub const MADE: &str = "rope.table";

/// The reference with memory for a checkpoint's weights, and what that memory is.
pub fn prepare(checkpoint: &Checkpoint) -> Result<(ModelLayout, Box<dyn Instance>), String> {
    let capacity = Capacity {
        state_slots: 1,
        kv_pages: 1,
        page_size: 16,
        max_positions: 1,
    };
    let layout = ModelLayout::new(checkpoint.spec(), capacity).map_err(|e| e.to_string())?;
    let instance = Reference.open(layout.table()).map_err(|e| e.to_string())?;
    Ok((layout, instance))
}

/// Fills it.
pub fn fill(
    checkpoint: &Checkpoint,
    layout: &ModelLayout,
    instance: &mut dyn Instance,
) -> Result<(), String> {
    let filled = checkpoint.load(layout.table(), &[MADE], instance, |_| {});
    filled.map_err(|e| e.to_string())
}

/// Bytes of every weight buffer that the checkpoint fills.
pub fn load(checkpoint: &Checkpoint) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let (layout, mut instance) = prepare(checkpoint)?;
    fill(checkpoint, &layout, instance.as_mut())?;
    let mut buffers = BTreeMap::new();
    let weights = layout
        .table()
        .iter()
        .filter(|(_, d)| d.role == Role::Weight);
    for (id, decl) in weights.filter(|(_, d)| d.name != MADE) {
        let mut bytes = vec![0; decl.bytes()];
        let read = instance.read(Place::Model(id), 0, &mut bytes);
        read.map_err(|e| e.to_string())?;
        buffers.insert(decl.name.clone(), bytes);
    }
    Ok(buffers)
}
