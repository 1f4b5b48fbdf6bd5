//! The trained demo model and held-out text. Random weights spread everything evenly; trained ones have
//! outliers, sharp attention and experts that real text prefers.

use crate::small_model::{Formats, ModelError, Weights};
use layerlet_core::backend::{Backend, BackendError, Place};
use layerlet_core::buffer::Role;
use layerlet_core::plan::{Capacity, ModelLayout, ModelSpec, rope_table};
use layerlet_core::reference::Reference;
use layerlet_engine::checkpoint::Checkpoint;
use serde::Deserialize;
use std::fs;
use std::path::PathBuf;

/// Where model and text lie.
fn folder() -> PathBuf {
    crate::folder().join("models/demo")
}

/// Sizes, formats and weights. The draft head stays out: the ways through a model do not run it.
pub fn open(formats: Formats) -> Result<(ModelSpec, Weights), ModelError> {
    let folder = folder().join(match formats {
        Formats::Bf16 => "bf16",
        Formats::W8A8 => "int8",
    });
    let checkpoint = Checkpoint::open(&folder)?;
    let mut spec = checkpoint.spec();
    let weights = weights(&checkpoint, &spec)?;
    spec.config.mtp_layers = 0;
    Ok((spec, weights))
}

/// As a backend gets them: loaded into the reference's memory and read from there.
fn weights(checkpoint: &Checkpoint, spec: &ModelSpec) -> Result<Weights, ModelError> {
    let capacity = Capacity {
        state_slots: 1,
        kv_pages: 1,
        page_size: 1,
        max_positions: spec.config.max_position,
    };
    let layout = ModelLayout::new(spec.clone(), capacity)?;
    let mut instance = Reference.open(layout.table())?;
    checkpoint.load(layout.table(), &["rope.table"], instance.as_mut(), |_| ())?;
    let table = rope_table(&spec.config.attention, capacity.max_positions);
    let place = Place::Model(layout.rope_table.id());
    instance.write(place, 0, bytemuck::cast_slice(&table))?;
    let all = layout.table().iter();
    all.filter(|(_, decl)| decl.role == Role::Weight)
        .map(|(id, decl)| {
            let mut bytes = vec![0; decl.bytes()];
            instance.read(Place::Model(id), 0, &mut bytes)?;
            Ok((decl.name.clone(), (decl.clone(), bytes)))
        })
        .collect::<Result<_, BackendError>>()
        .map_err(ModelError::from)
}

/// A window of text that no training has seen.
#[derive(Deserialize)]
struct Window {
    ids: Vec<u32>,
}

/// Beginnings of held-out windows, spread over their file so that every source is among them.
pub fn texts(lengths: &[usize]) -> Result<Vec<Vec<u32>>, ModelError> {
    let path = folder().join("heldout.jsonl");
    let failed = |problem: String| ModelError::File {
        path: path.clone(),
        problem,
    };
    let text = fs::read_to_string(&path).map_err(|e| failed(e.to_string()))?;
    let lines: Vec<&str> = text.lines().collect();
    let nth = |(n, length): (usize, &usize)| {
        let line = lines.get(n * lines.len() / lengths.len());
        let line = line.ok_or_else(|| failed("is empty".into()))?;
        let window: Window = serde_json::from_str(line).map_err(|e| failed(e.to_string()))?;
        let ids = window.ids.get(..*length);
        let short = || failed(format!("a window has fewer than {length} ids"));
        ids.map(<[u32]>::to_vec).ok_or_else(short)
    };
    lengths.iter().enumerate().map(nth).collect()
}
