//! Takes texts through a model by a way and collects what every way must agree on.

use super::ways::{Chunk, MARGIN, Way};
use crate::demo_model;
use crate::run::Written;
use crate::small_model::{self, Formats, Model, ModelError, SLOTS, Weights};
use layerlet_core::backend::Backend;
use layerlet_core::buffer::{BufferDecl, Role};
use layerlet_core::dtype::DType;
use layerlet_core::plan::{
    Capacity, Head, ModelSpec, SamplingParams, SamplingStep, SequenceStep, StepShape,
};

/// A model and the texts that it reads.
pub struct Scene {
    /// Sizes and formats.
    pub spec: ModelSpec,
    /// Tokens of each sequence.
    pub texts: Vec<Vec<u32>>,
    /// Bytes of the weights.
    pub weights: Weights,
}

impl Scene {
    /// Random texts of these lengths over the small random model.
    pub fn random(formats: Formats, lengths: &[usize]) -> Result<Scene, ModelError> {
        let longest = lengths.iter().max().copied().unwrap_or_default();
        let spec = small_model::spec(formats, longest + 64);
        let texts = lengths.iter().zip(1..);
        let texts = texts.map(|(n, seed)| small_model::ids(*n, seed)).collect();
        Ok(Scene {
            weights: small_model::weights(&spec, capacity(&spec, 1, 1))?,
            spec,
            texts,
        })
    }

    /// Held-out texts of these lengths over the trained model.
    pub fn trained(formats: Formats, lengths: &[usize]) -> Result<Scene, ModelError> {
        let (spec, weights) = demo_model::open(formats)?;
        Ok(Scene {
            texts: demo_model::texts(lengths)?,
            spec,
            weights,
        })
    }

    /// How long the texts are.
    pub fn lengths(&self) -> Vec<usize> {
        self.texts.iter().map(Vec::len).collect()
    }
}

fn capacity(spec: &ModelSpec, kv_pages: usize, page_size: usize) -> Capacity {
    Capacity {
        state_slots: SLOTS,
        kv_pages,
        page_size,
        max_positions: spec.config.max_position,
    }
}

/// State, tokens and logits of every sequence at the end of a way.
pub fn walk(
    backend: &dyn Backend,
    scene: &Scene,
    way: &Way,
    fused: bool,
) -> Result<Vec<Written>, ModelError> {
    let kv_pages = way.pages.iter().map(Vec::len).sum();
    let capacity = capacity(&scene.spec, kv_pages, way.page_size);
    let mut model = Model::open(backend, &scene.spec, capacity, &scene.weights)?;
    if way.fouled {
        model.foul_state()?;
    }
    for _ in 0..usize::from(way.again) {
        Walk::new(scene).run(&mut model, scene, way, fused)?;
    }
    let mut walk = Walk::new(scene);
    walk.run(&mut model, scene, way, fused)?;
    walk.results(&mut model, scene, way)
}

struct Walk {
    done: Vec<usize>,
    held: Vec<Option<u32>>,
    tokens: Vec<Vec<u8>>,
    logits: Vec<Vec<u8>>,
}

impl Walk {
    fn new(scene: &Scene) -> Walk {
        let n = scene.texts.len();
        Walk {
            done: vec![0; n],
            held: vec![None; n],
            tokens: vec![Vec::new(); n],
            logits: vec![Vec::new(); n],
        }
    }

    fn run(
        &mut self,
        model: &mut Model,
        scene: &Scene,
        way: &Way,
        fused: bool,
    ) -> Result<(), ModelError> {
        let rows = |step: &[Chunk]| step.iter().map(|c| c.rows + c.rejected).sum::<usize>();
        let longest = way.steps.iter().map(|s| rows(s)).max().unwrap_or_default();
        let widest = way.steps.iter().map(Vec::len).max().unwrap_or_default();
        for step in &way.steps {
            let (rows, sequences) = match way.bucket {
                true => (longest, widest),
                false => (rows(step), step.len()),
            };
            let shape = StepShape {
                tokens: rows + way.spare,
                sequences: sequences + way.spare,
                outputs: rows + way.spare,
                pages_per_sequence: way.pages.iter().map(Vec::len).max().unwrap_or(1),
                head: head(scene, way),
                verify: false,
                trace: false,
            };
            self.step(model, scene, way, fused, step, &shape)?;
        }
        Ok(())
    }

    fn step(
        &mut self,
        model: &mut Model,
        scene: &Scene,
        way: &Way,
        fused: bool,
        step: &[Chunk],
        shape: &StepShape,
    ) -> Result<(), ModelError> {
        let rows: Vec<Vec<u32>> = step.iter().map(|c| self.rows(scene, c)).collect();
        let writes: Vec<Vec<(usize, u32)>> = step.iter().map(writes).collect();
        let outputs: Vec<Vec<usize>> = rows.iter().map(|r| (0..r.len()).collect()).collect();
        let sequences: Vec<SequenceStep<'_>> = step
            .iter()
            .enumerate()
            .map(|(n, chunk)| SequenceStep {
                tokens: &rows[n],
                start: self.done[chunk.sequence] as u32,
                pages: &way.pages[chunk.sequence],
                state_read: self.held[chunk.sequence],
                state_writes: &writes[n],
                outputs: &outputs[n],
                sampling: way.sampled.then(|| self.sampling(scene, chunk.sequence)),
            })
            .collect();
        let ran = model.step(shape, fused, &sequences)?;
        let outputs = [("tokens", 4), ("logits", 2 * scene.spec.config.vocab)];
        for (kept, (name, width)) in [&mut self.tokens, &mut self.logits]
            .into_iter()
            .zip(outputs)
        {
            let Some(bytes) = model.output(ran, name)? else {
                continue;
            };
            let mut at = 0;
            for chunk in step {
                kept[chunk.sequence].extend(&bytes[at * width..(at + chunk.rows) * width]);
                at += chunk.rows + chunk.rejected;
            }
        }
        for chunk in step {
            self.done[chunk.sequence] += chunk.rows;
            self.held[chunk.sequence] = Some(chunk.slot);
        }
        Ok(())
    }

    /// Every sequence has its own seed; every token up to an output's counts for its penalties.
    fn sampling<'a>(&self, scene: &'a Scene, sequence: usize) -> SamplingStep<'a> {
        SamplingStep {
            params: SamplingParams {
                temperature: 0.9,
                top_k: 40,
                top_p: 0.95,
                repetition_penalty: 1.2,
                presence_penalty: 0.1,
                seed: sequence as u64,
                ..SamplingParams::default()
            },
            history: &scene.texts[sequence][..=self.done[sequence]],
            generated: 0,
        }
    }

    /// The right tokens, then wrong ones.
    fn rows(&self, scene: &Scene, chunk: &Chunk) -> Vec<u32> {
        let start = self.done[chunk.sequence];
        let end = start + chunk.rows;
        let text = &scene.texts[chunk.sequence];
        let vocab = scene.spec.config.vocab as u32;
        let wrong = (end..end + chunk.rejected).map(|i| (text[i % text.len()] + 1) % vocab);
        text[start..end].iter().copied().chain(wrong).collect()
    }

    /// Layer by layer, so that the first difference is the earliest; then what follows from it.
    fn results(
        self,
        model: &mut Model,
        scene: &Scene,
        way: &Way,
    ) -> Result<Vec<Written>, ModelError> {
        let mut written = Vec::new();
        for decl in model.states() {
            for (sequence, text) in scene.texts.iter().enumerate() {
                let mut shape = decl.shape[1..].to_vec();
                let bytes = match decl.name.ends_with("_cache") {
                    true => {
                        shape[0] = text.len();
                        positions(model, &decl, &way.pages[sequence], text.len())?
                    }
                    false => model.state(&decl.name, self.held[sequence].unwrap_or_default())?,
                };
                let name = format!("{} of sequence {sequence}", decl.name);
                written.push(result(name, decl.dtype, shape, bytes));
            }
        }
        for (sequence, text) in scene.texts.iter().enumerate() {
            let logits = &self.logits[sequence];
            if !logits.is_empty() {
                let name = format!("logits of sequence {sequence}");
                let shape = vec![text.len(), scene.spec.config.vocab];
                written.push(result(name, DType::Bf16, shape, logits.clone()));
            }
            let name = format!("tokens of sequence {sequence}");
            let tokens = self.tokens[sequence].clone();
            written.push(result(name, DType::U32, vec![text.len()], tokens));
        }
        Ok(written)
    }
}

/// Room for every row with all the tokens before it.
fn head(scene: &Scene, way: &Way) -> Head {
    let texts = scene.lengths().into_iter();
    match way.sampled {
        true => Head::Sample {
            history: texts.map(|n| (n + MARGIN) * (n + MARGIN)).sum(),
        },
        false => Head::Argmax,
    }
}

fn writes(chunk: &Chunk) -> Vec<(usize, u32)> {
    let mut writes = vec![(chunk.rows - 1, chunk.slot)];
    if chunk.rejected > 0 {
        writes.push((chunk.rows + chunk.rejected - 1, chunk.thrown));
    }
    writes
}

/// Keys or values of a sequence by logical position.
fn positions(
    model: &mut Model,
    decl: &BufferDecl,
    pages: &[u32],
    count: usize,
) -> Result<Vec<u8>, ModelError> {
    let mut bytes = Vec::new();
    for page in pages {
        bytes.extend(model.state(&decl.name, *page)?);
    }
    bytes.truncate(count * decl.bytes() / (decl.shape[0] * decl.shape[1]));
    Ok(bytes)
}

/// A result under a name of its own.
pub fn result(name: String, dtype: DType, shape: Vec<usize>, bytes: Vec<u8>) -> Written {
    let decl = BufferDecl {
        name,
        dtype,
        shape,
        role: Role::Output,
    };
    Written { decl, bytes }
}
