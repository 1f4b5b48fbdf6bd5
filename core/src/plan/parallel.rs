//! Tensor and expert parallelism that change no byte: where a rank's plan differs from the whole model's, which part of each
//! weight a rank holds, and a lockstep runner that shows it.
//!
//! - Heads (attention, delta net), the experts' inner columns and the vocabulary are cut by *output*: nothing is summed.
//! - A W8A8 linear over cut columns is cut by K: row maxima are reduced as maxima, i32 sums as sums, and scaled once.
//! - A bf16 linear over cut columns first gathers its input, then is cut by output: a float sum is never cut.
//! - Experts' second projections are cut by output on gathered inputs, in either format: their rows stay those of one device.
//! - Where ranks hold whole experts instead, each computes the rows of its own; bf16 rows are exchanged and every rank adds
//!   them in slot order (`routed_experts`). Partial sums never travel.
//! - The residual stream, norms, router and embedding are the same on every rank.

use super::forward::Builder;
use super::layout::{LinearFormat, LinearWeight, ModelLayout, ModelSpec};
use super::{Plan, PlanError, Split};
use crate::backend::{Backend, BackendError, Instance, Place, PlanId};
use crate::buffer::{Buf, BufferDecl, BufferError, Role};
use crate::launch::Launch;
use crate::memory::HostElement;
use crate::numerics::bf16;
use crate::ops::*;
use alloc::boxed::Box;
use alloc::{format, vec, vec::Vec};
use core::ops::Range;

impl Builder<'_> {
    /// A linear over columns that the ranks share, back to the hidden size.
    pub(super) fn output_linear(
        &mut self,
        x: Buf<bf16>,
        weight: LinearWeight,
        name: &str,
    ) -> Result<Buf<bf16>, BufferError> {
        let ranks = self.layout.split().tensor_ranks();
        if ranks == 1 {
            let [out] = self.linears(x, [(weight, name)])?;
            return Ok(out);
        }
        match weight {
            LinearWeight::Bf16(_) => {
                let x = self.all_columns(x, ranks, &format!("{name}.in"))?;
                let part = format!("{name}.part");
                let [out] = self.linears(x, [(weight, part.as_str())])?;
                self.all_columns(out, ranks, name)
            }
            LinearWeight::W8A8 { weight, scale } => self.k_split(x, weight, scale, name),
        }
    }

    fn k_split(
        &mut self,
        x: Buf<bf16>,
        weight: Buf<i8>,
        weight_scale: Buf<f32>,
        name: &str,
    ) -> Result<Buf<bf16>, BufferError> {
        let [rows, k] = self.plan.buffers.dims(x)?;
        let [n] = self.plan.buffers.dims(weight_scale)?;
        let local = self.buffer(format!("{name}.absmax.part"), &[rows])?;
        self.push(RowAbsmax { x, absmax: local });
        let absmax = self.buffer(format!("{name}.absmax"), &[rows])?;
        self.push(AllReduceMax {
            x: local,
            out: absmax,
        });
        let codes = self.buffer(format!("{name}.codes"), &[rows, k])?;
        let scale = self.buffer(format!("{name}.scale"), &[rows])?;
        self.push(QuantizeRowsBy {
            x,
            absmax,
            codes,
            scale,
        });
        let part = self.buffer(format!("{name}.acc.part"), &[rows, n])?;
        self.push(LinearW8A8Partial {
            codes,
            weight,
            acc: part,
        });
        let acc = self.buffer(format!("{name}.acc"), &[rows, n])?;
        self.push(AllReduceSum { x: part, out: acc });
        let out = self.rows(name, n)?;
        self.push(Dequantize {
            acc,
            scale,
            weight_scale,
            out,
        });
        Ok(out)
    }

    /// The columns of all ranks; on one device they are there already.
    pub(super) fn all_columns(
        &mut self,
        x: Buf<bf16>,
        ranks: usize,
        name: &str,
    ) -> Result<Buf<bf16>, BufferError> {
        let [rows, part] = self.plan.buffers.dims(x)?;
        match ranks {
            1 => Ok(x),
            ranks => {
                let out = self.buffer(name, &[rows, part * ranks])?;
                self.push(AllGatherColumns { x, out });
                Ok(out)
            }
        }
    }
}

/// The logits of all ranks' parts of the vocabulary, a row for each of `out_rows`.
pub(super) fn logits(
    plan: &mut Plan,
    layout: &ModelLayout,
    x: Buf<bf16>,
    out_rows: Buf<u32>,
    name: &str,
    role: Role,
) -> Result<Buf<bf16>, BufferError> {
    let [rows] = plan.buffers.dims(out_rows)?;
    let (own, vocab) = (layout.local().vocab, layout.config().vocab);
    let head = |plan: &mut Plan, logits| {
        let weight = layout.lm_head;
        plan.launches.push(
            LmHead {
                x,
                out_rows,
                weight,
                logits,
            }
            .into(),
        );
    };
    if own == vocab {
        let logits = plan.buffers.declare(name, &[rows, vocab], role)?;
        head(plan, logits);
        return Ok(logits);
    }
    let part = format!("{name}.part");
    let part = plan.buffers.declare(part, &[rows, own], Role::Scratch)?;
    head(plan, part);
    let out = plan.buffers.declare(name, &[rows, vocab], role)?;
    plan.launches.push(AllGatherColumns { x: part, out }.into());
    Ok(out)
}

/// How a weight of the whole model is cut: which of its rows, or which of its columns, a rank holds.
enum Cut {
    Whole,
    /// Ranges of rows of the last matrix (`[.., N, K]`, or `[N]`), out of `N`.
    Rows(Vec<Range<usize>>),
    Columns(Range<usize>),
}

/// The bytes of one rank's part of a weight of the whole model.
pub fn cut_weight(spec: &ModelSpec, split: Split, decl: &BufferDecl, bytes: &[u8]) -> Vec<u8> {
    let size = decl.dtype.size();
    let per_expert = decl.name.contains(".experts.");
    let matrices = if per_expert { decl.shape[0] } else { 1 };
    let own = match per_expert {
        true => split.experts(matrices),
        false => 0..1,
    };
    let matrix = bytes.len() / matrices;
    let n = decl.shape[usize::from(per_expert)];
    let row = matrix / n;
    let mut out = Vec::new();
    for matrix in bytes.chunks_exact(matrix).take(own.end).skip(own.start) {
        match cut(spec, split, decl, n, row / size) {
            Cut::Whole => out.extend_from_slice(matrix),
            Cut::Rows(ranges) => ranges
                .into_iter()
                .for_each(|r| out.extend_from_slice(&matrix[r.start * row..r.end * row])),
            Cut::Columns(range) => matrix
                .chunks_exact(row)
                .for_each(|r| out.extend_from_slice(&r[range.start * size..range.end * size])),
        }
    }
    out
}

fn cut(spec: &ModelSpec, split: Split, decl: &BufferDecl, n: usize, k: usize) -> Cut {
    let ranks = match decl.name.contains(".experts.") {
        true => split.expert_column_ranks(),
        false => split.tensor_ranks(),
    };
    let part = |from: usize, count: usize| {
        let (each, rank) = (count / ranks, split.rank % ranks);
        from + rank * each..from + (rank + 1) * each
    };
    let module = decl
        .name
        .trim_end_matches("_scale")
        .trim_end_matches(".weight");
    let kind = module.rsplit('.').next().unwrap_or_default();
    let d = &spec.config.delta_net;
    let (keys, values) = (d.key_heads * d.key_dim, d.value_heads * d.value_dim);
    match kind {
        "in_proj_qkv" | "conv1d" => Cut::Rows(vec![
            part(0, keys),
            part(keys, keys),
            part(2 * keys, values),
        ]),
        "q_proj" | "k_proj" | "v_proj" | "in_proj_z" | "in_proj_b" | "in_proj_a" | "A_log"
        | "dt_bias" | "lm_head" => Cut::Rows(vec![part(0, n)]),
        "gate_up_proj" => Cut::Rows(vec![part(0, n / 2), part(n / 2, n / 2)]),
        "down_proj" if module.contains(".experts.") => Cut::Rows(vec![part(0, n)]),
        "o_proj" | "out_proj" | "down_proj" => match spec.format(module) {
            LinearFormat::Bf16 => Cut::Rows(vec![part(0, n)]),
            LinearFormat::W8A8 if decl.name.ends_with("_scale") => Cut::Whole,
            LinearFormat::W8A8 => Cut::Columns(part(0, k)),
        },
        _ => Cut::Whole,
    }
}

/// Several ranks of one model on this host, run in lockstep: what a real set of devices must equal.
pub struct Ranks {
    ranks: Vec<(ModelLayout, Box<dyn Instance>)>,
}

/// A plan prepared on every rank.
pub struct RankPlans {
    plans: Vec<(Plan, PlanId)>,
}

impl Ranks {
    /// Opens each rank's part of a model.
    pub fn open(layouts: Vec<ModelLayout>, backend: &dyn Backend) -> Result<Ranks, BackendError> {
        let open = |layout: ModelLayout| {
            let instance = backend.open(layout.table())?;
            Ok((layout, instance))
        };
        let ranks = layouts
            .into_iter()
            .map(open)
            .collect::<Result<_, BackendError>>()?;
        Ok(Ranks { ranks })
    }

    /// A rank's layout and memory.
    pub fn rank(&mut self, rank: usize) -> (&ModelLayout, &mut dyn Instance) {
        let (layout, instance) = &mut self.ranks[rank];
        (layout, instance.as_mut())
    }

    /// Builds and prepares a plan for every rank.
    pub fn prepare(
        &mut self,
        build: impl Fn(&ModelLayout) -> Result<Plan, PlanError>,
    ) -> Result<RankPlans, BackendError> {
        let prepare = |(layout, instance): &mut (ModelLayout, Box<dyn Instance>)| {
            let plan = build(layout)?;
            let id = instance.prepare(&plan)?;
            Ok((plan, id))
        };
        let plans = self
            .ranks
            .iter_mut()
            .map(prepare)
            .collect::<Result<_, BackendError>>()?;
        Ok(RankPlans { plans })
    }

    /// Writes a step buffer on every rank.
    pub fn write(
        &mut self,
        plans: &RankPlans,
        name: &str,
        bytes: &[u8],
    ) -> Result<(), BackendError> {
        for ((_, instance), (plan, id)) in self.ranks.iter_mut().zip(&plans.plans) {
            instance.write(Place::Plan(*id, plan.buffers.find(name)?), 0, bytes)?;
        }
        Ok(())
    }

    /// Reads a buffer of one rank.
    pub fn read(
        &mut self,
        plans: &RankPlans,
        rank: usize,
        name: &str,
    ) -> Result<Vec<u8>, BackendError> {
        let (plan, id) = &plans.plans[rank];
        let buffer = plan.buffers.find(name)?;
        let mut bytes = vec![0; plan.buffers.get(buffer)?.bytes()];
        self.ranks[rank]
            .1
            .read(Place::Plan(*id, buffer), 0, &mut bytes)?;
        Ok(bytes)
    }

    /// Runs all ranks, launch by launch; collectives run over all of them.
    pub fn run(&mut self, plans: &RankPlans) -> Result<(), BackendError> {
        let launches = plans.plans[0].0.launches.len();
        for at in 0..launches {
            match &plans.plans[0].0.launches[at] {
                Launch::AllReduceMax(op) => self.exchange(plans, op.x, op.out, |ranks, out| {
                    all_reduce_max(ranks, out);
                    Ok(())
                })?,
                Launch::AllReduceSum(op) => self.exchange(plans, op.x, op.out, |ranks, out| {
                    all_reduce_sum(ranks, out).map_err(|sum| BackendError::Device {
                        backend: "ranks".into(),
                        message: format!("launch {at}: the sum {sum} leaves i32"),
                    })
                })?,
                Launch::AllGatherColumns(op) => {
                    let [_, part] = plans.plans[0].0.buffers.dims(op.x)?;
                    self.exchange(plans, op.x, op.out, |ranks, out| {
                        all_gather_columns(ranks, part, out);
                        Ok(())
                    })?;
                }
                Launch::ExchangeSlotRows(op) => self.exchange_rows(plans, op)?,
                _ => {
                    for ((_, instance), (_, id)) in self.ranks.iter_mut().zip(&plans.plans) {
                        instance.run_range(*id, at..at + 1)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn exchange<E: HostElement>(
        &mut self,
        plans: &RankPlans,
        x: Buf<E>,
        out: Buf<E>,
        combine: impl Fn(&[&[E]], &mut [E]) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let buffers = &plans.plans[0].0.buffers;
        let parts = self.contents(plans, x)?;
        let mut joined = vec![E::default(); buffers.get(out.id())?.elements()];
        let parts: Vec<&[E]> = parts.iter().map(Vec::as_slice).collect();
        combine(&parts, &mut joined)?;
        for ((_, instance), (_, id)) in self.ranks.iter_mut().zip(&plans.plans) {
            instance.write(Place::Plan(*id, out.id()), 0, bytemuck::cast_slice(&joined))?;
        }
        Ok(())
    }

    /// Each rank looks for the rows by its own offsets, as a device would.
    fn exchange_rows(
        &mut self,
        plans: &RankPlans,
        op: &ExchangeSlotRows,
    ) -> Result<(), BackendError> {
        let [pairs, width] = plans.plans[0].0.buffers.dims(op.out)?;
        let (parts, offsets) = (
            self.contents(plans, op.x)?,
            self.contents(plans, op.offsets)?,
        );
        let parts: Vec<&[bf16]> = parts.iter().map(Vec::as_slice).collect();
        let mut joined = vec![bf16::ZERO; pairs * width];
        for (((_, instance), (_, id)), offsets) in
            self.ranks.iter_mut().zip(&plans.plans).zip(&offsets)
        {
            exchange_slot_rows(&parts, offsets, width, &mut joined)
                .map_err(|found| exchange_error(found, pairs))?;
            let out = Place::Plan(*id, op.out.id());
            instance.write(out, 0, bytemuck::cast_slice(&joined))?;
        }
        Ok(())
    }

    /// What every rank has in a buffer.
    fn contents<E: HostElement>(
        &mut self,
        plans: &RankPlans,
        buffer: Buf<E>,
    ) -> Result<Vec<Vec<E>>, BackendError> {
        let elements = plans.plans[0].0.buffers.get(buffer.id())?.elements();
        let mut contents = Vec::new();
        for ((_, instance), (_, id)) in self.ranks.iter_mut().zip(&plans.plans) {
            let mut content = vec![E::default(); elements];
            let place = Place::Plan(*id, buffer.id());
            instance.read(place, 0, bytemuck::cast_slice_mut(&mut content))?;
            contents.push(content);
        }
        Ok(contents)
    }
}
