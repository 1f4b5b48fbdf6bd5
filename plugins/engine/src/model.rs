//! A checkpoint in a backend's memory, and the plans prepared over it.
//!
//! Invariants: a plan is prepared once for each step shape; weights are written before any plan is
//! prepared and never again; what the loader holds beside the backend's copy is a mapping, which the
//! system may drop at any time.

use crate::checkpoint::{Checkpoint, Stored};
use crate::error::EngineError;
use layerlet_core::backend::{Backend, Instance, Place, PlanId};
use layerlet_core::buffer::Role;
use layerlet_core::dtype::{DType, Element};
use layerlet_core::launch::{Launch, Layerlet};
use layerlet_core::numerics::bf16;
use layerlet_core::plan::{
    Capacity, LinearFormat, ModelLayout, ModelSpec, MtpShape, Plan, SequenceStep, StepInput,
    StepShape, forward, fuse, mtp, rope_table,
};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Positions on a page of keys and values.
pub const PAGE_SIZE: usize = 64;

/// How a model is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Room for state.
    pub capacity: Capacity,
    /// Use the backend's fused kernels.
    pub fused: bool,
}

impl Options {
    /// Room for one sequence of this many tokens.
    pub fn for_one_sequence(tokens: usize) -> Options {
        let capacity = Capacity {
            state_slots: 1,
            kv_pages: tokens.max(1).div_ceil(PAGE_SIZE),
            page_size: PAGE_SIZE,
            max_positions: tokens.max(1),
        };
        Options {
            capacity,
            fused: true,
        }
    }
}

impl Checkpoint {
    /// What the plans need to know: sizes, and which linears are W8A8.
    pub fn spec(&self) -> ModelSpec {
        let int8 = self.weights().iter().filter(|w| w.stored == Stored::Int8);
        let formats = int8.map(|w| (w.parameter.module.clone(), LinearFormat::W8A8));
        ModelSpec {
            config: self.config.model.clone(),
            formats: formats.collect(),
        }
    }
}

/// A model ready to run.
pub struct Model {
    layout: ModelLayout,
    layerlets: Vec<Layerlet>,
    instance: Box<dyn Instance>,
    plans: HashMap<StepShape, (Plan, PlanId)>,
    /// Of the prediction head, by shape and number of drafts.
    drafting: HashMap<(StepShape, usize), (Plan, PlanId)>,
}

impl Model {
    /// Loads every weight; `progress` hears bytes written so far and in all.
    pub fn load(
        checkpoint: &Checkpoint,
        backend: &dyn Backend,
        options: &Options,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Model, EngineError> {
        let layout = ModelLayout::new(checkpoint.spec(), options.capacity)?;
        let mut instance = backend.open(layout.table())?;
        let total = layout.table().bytes_of(Role::Weight);
        checkpoint.load(layout.table(), &["rope.table"], instance.as_mut(), |done| {
            progress(done, total)
        })?;
        let table = rope_table(&layout.config().attention, options.capacity.max_positions);
        instance.write(
            Place::Model(layout.rope_table.id()),
            0,
            bytemuck::cast_slice(&table),
        )?;
        let layerlets = if options.fused {
            backend.layerlets().to_vec()
        } else {
            Vec::new()
        };
        Ok(Model {
            layout,
            layerlets,
            instance,
            plans: HashMap::new(),
            drafting: HashMap::new(),
        })
    }

    /// The model's buffers and sizes.
    pub fn layout(&self) -> &ModelLayout {
        &self.layout
    }

    /// Whether fused kernels run its steps.
    pub fn fused(&self) -> bool {
        !self.layerlets.is_empty()
    }

    /// Runs one step; its plan is prepared at the first use of the shape.
    pub fn step(
        &mut self,
        shape: &StepShape,
        sequences: &[SequenceStep<'_>],
    ) -> Result<Step<'_>, EngineError> {
        let id = self.write_step(shape, sequences)?;
        self.instance.run(id, usize::MAX)?;
        Ok(self.ran(shape))
    }

    /// Runs one step launch by launch; `on_launch` hears of each launch how long it took.
    pub fn step_by_launch(
        &mut self,
        shape: &StepShape,
        sequences: &[SequenceStep<'_>],
        mut on_launch: impl FnMut(&Launch, Duration),
    ) -> Result<Step<'_>, EngineError> {
        let id = self.write_step(shape, sequences)?;
        for (n, launch) in self.plans[shape].0.launches.iter().enumerate() {
            let started = Instant::now();
            self.instance.run_range(id, n..n + 1)?;
            on_launch(launch, started.elapsed());
        }
        Ok(self.ran(shape))
    }

    /// The plan of a step shape as this model runs it.
    pub fn plan(&mut self, shape: &StepShape) -> Result<&Plan, EngineError> {
        if !self.plans.contains_key(shape) {
            let plan = fuse(&forward(&self.layout, shape)?, &self.layerlets);
            let id = self.instance.prepare(&plan)?;
            self.plans.insert(*shape, (plan, id));
        }
        Ok(&self.plans[shape].0)
    }

    fn write_step(
        &mut self,
        shape: &StepShape,
        sequences: &[SequenceStep<'_>],
    ) -> Result<PlanId, EngineError> {
        let input = StepInput::new(&self.layout, shape, sequences)?;
        self.plan(shape)?;
        let (plan, id) = &self.plans[shape];
        write_input(self.instance.as_mut(), plan, *id, &input)?;
        Ok(*id)
    }

    /// Drafts of the prediction head: by pass of the chain, one for each sequence that has an output. `tokens` of a sequence
    /// are those that follow its rows, `hidden` their states after the final norm.
    pub fn draft(
        &mut self,
        shape: &MtpShape,
        sequences: &[SequenceStep<'_>],
        hidden: &[bf16],
    ) -> Result<Vec<Vec<u32>>, EngineError> {
        let input = StepInput::for_mtp(&self.layout, shape, sequences, hidden)?;
        let key = (shape.step, shape.drafts);
        if !self.drafting.contains_key(&key) {
            let plan = fuse(&mtp(&self.layout, shape)?, &self.layerlets);
            let id = self.instance.prepare(&plan)?;
            self.drafting.insert(key, (plan, id));
        }
        let (plan, id) = &self.drafting[&key];
        write_input(self.instance.as_mut(), plan, *id, &input)?;
        self.instance.run(*id, usize::MAX)?;
        let outputs = sequences.iter().map(|s| s.outputs.len()).sum();
        let mut step = Step {
            plan,
            id: *id,
            instance: self.instance.as_mut(),
        };
        let passes = 0..shape.drafts;
        passes
            .map(|n| step.read(&format!("mtp.{n}.tokens"), outputs))
            .collect()
    }

    fn ran(&mut self, shape: &StepShape) -> Step<'_> {
        let (plan, id) = &self.plans[shape];
        Step {
            plan,
            id: *id,
            instance: self.instance.as_mut(),
        }
    }

    /// Reads elements of a weight or state buffer.
    pub fn read_state<E: Element>(&mut self, name: &str) -> Result<Vec<E>, EngineError> {
        let buffer = self.layout.table().find_typed::<E>(name)?;
        let elements = self.layout.table().get(buffer.id())?.elements();
        let mut content = vec![E::default(); elements];
        self.instance.read(
            Place::Model(buffer.id()),
            0,
            bytemuck::cast_slice_mut(&mut content),
        )?;
        Ok(content)
    }
}

fn write_input(
    instance: &mut dyn Instance,
    plan: &Plan,
    id: PlanId,
    input: &StepInput,
) -> Result<(), EngineError> {
    for (name, bytes) in input.buffers() {
        instance.write(Place::Plan(id, plan.buffers.find(name)?), 0, bytes)?;
    }
    Ok(())
}

/// A step that has run: its outputs, until the next one.
pub struct Step<'a> {
    plan: &'a Plan,
    id: PlanId,
    instance: &'a mut dyn Instance,
}

impl Step<'_> {
    /// Reads the first `elements` of a buffer.
    pub fn read<E: Element>(&mut self, name: &str, elements: usize) -> Result<Vec<E>, EngineError> {
        let buffer = self.plan.buffers.find_typed::<E>(name)?;
        let mut content = vec![E::default(); elements];
        self.instance.read(
            Place::Plan(self.id, buffer.id()),
            0,
            bytemuck::cast_slice_mut(&mut content),
        )?;
        Ok(content)
    }

    /// All bytes of a buffer, and what they are.
    pub fn read_bytes(&mut self, name: &str) -> Result<(DType, Vec<u8>), EngineError> {
        let id = self.plan.buffers.find(name)?;
        let decl = self.plan.buffers.get(id)?;
        let mut bytes = vec![0; decl.bytes()];
        self.instance
            .read(Place::Plan(self.id, id), 0, &mut bytes)?;
        Ok((decl.dtype, bytes))
    }

    /// Columns of a buffer with one row a token.
    pub fn width(&self, name: &str) -> Result<usize, EngineError> {
        let decl = self.plan.buffers.get(self.plan.buffers.find(name)?)?;
        Ok(decl.shape.last().copied().unwrap_or(1))
    }
}
