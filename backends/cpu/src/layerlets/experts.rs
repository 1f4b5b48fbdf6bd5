//! What the two mixture-of-experts kernels share: a job is up to 16 rows of one expert (or of the
//! shared one), from codes to down projection, all between its projections kept by its thread.
//! Tokens are gathered by number; nothing is permuted.

use super::stages::{MlpStages, Source, WeightBufs, find, grouped};
use crate::expert_prologue::Routes;
use crate::level::Level;
use crate::linear::{Input, TILE_ROWS, Weights, project};
use crate::pool::Pool;
use crate::quantize_rows::quantize_row;
use crate::silu_mul::silu_mul_row;
use crate::weighted_gather::weighted_sum;
use layerlet_core::NONE;
use layerlet_core::buffer::Buf;
use layerlet_core::launch::Launch;
use layerlet_core::memory::Memory;
use layerlet_core::numerics::bf16;
use layerlet_core::ops::{ExpertPrologue, QuantizeRows, WeightedGather};

/// The stages from routes to weighted sum.
pub struct RoutedStages<'a> {
    pub prologue: &'a ExpertPrologue,
    pub mlp: MlpStages,
    pub gather: &'a WeightedGather,
}

impl<'a> RoutedStages<'a> {
    pub fn among(stages: &'a [Launch], memory: &Memory<'_>) -> Option<RoutedStages<'a>> {
        let gather = find!(stages, WeightedGather(op))?;
        let prologue = find!(stages, ExpertPrologue(op) if op.row_of_slot == gather.row_of_slot)?;
        let down = grouped(stages, memory, gather.y)?;
        let mlp = MlpStages::ending_in(stages, memory, down, grouped)?;
        Some(RoutedStages {
            prologue,
            mlp,
            gather,
        })
    }

    /// How many stages these are, without the quantisation of the input.
    pub fn count(&self) -> usize {
        2 + self.mlp.count()
    }
}

/// Whether the stages are `count` and the quantisation of `inputs`, each known by its codes.
pub fn are_all(stages: &[Launch], count: usize, sources: &[&Source]) -> bool {
    let known = |codes: Buf<i8>| {
        let mut sources = sources.iter();
        sources.any(|source| matches!(source, Source::Quantize(op) if op.codes == codes))
    };
    let inputs = stages
        .iter()
        .filter(|stage| matches!(stage, Launch::QuantizeRows(op) if known(op.codes)));
    stages.len() == count + inputs.count()
}

/// The rows that enter a layer, in the forms that its linears read.
pub struct Rows<'a> {
    x: &'a [bf16],
    /// Codes and scales, if any linear wants them computed here.
    quantised: (Vec<i8>, Vec<f32>),
}

/// Where one linear takes the rows of [`Rows`] from.
pub enum RowsFor<'a> {
    Bf16(&'a [bf16]),
    Codes(&'a [i8], &'a [f32]),
}

impl<'a> Rows<'a> {
    /// `None` where the sources are not all the same rows.
    pub fn new(sources: &[&Source], pool: &Pool, memory: &'a Memory<'_>) -> Option<Rows<'a>> {
        let of = |source: &&Source| match source {
            Source::Bf16(x) => Some(*x),
            Source::Quantize(op) => Some(op.x),
            Source::Codes(..) => None,
        };
        let mut used = sources.iter().filter_map(of);
        let Some(x) = used.next() else {
            return Some(Rows {
                x: &[],
                quantised: Default::default(),
            });
        };
        if used.any(|other| other != x) {
            return None;
        }
        let [rows, k] = memory.dims(x);
        let x = memory.get(x);
        let quantised = match sources.iter().any(|s| matches!(s, Source::Quantize(_))) {
            true => quantize_all(pool, x, rows, k),
            false => Default::default(),
        };
        Some(Rows { x, quantised })
    }

    /// The rows as one linear reads them.
    pub fn view(&'a self, source: &Source, memory: &'a Memory<'_>) -> RowsFor<'a> {
        match *source {
            Source::Bf16(_) => RowsFor::Bf16(self.x),
            Source::Quantize(_) => RowsFor::Codes(&self.quantised.0, &self.quantised.1),
            Source::Codes(codes, scale) => RowsFor::Codes(memory.get(codes), memory.get(scale)),
        }
    }

    /// Codes and scales that were computed here.
    pub fn into_quantised(self) -> (Vec<i8>, Vec<f32>) {
        self.quantised
    }
}

impl RowsFor<'_> {
    /// Some of the rows, for the inner loops.
    pub fn input(&self, level: Level, k: usize, rows: impl Iterator<Item = usize>) -> Input {
        match self {
            RowsFor::Bf16(x) => Input::widen(level, rows.map(|row| &x[row * k..][..k])),
            RowsFor::Codes(codes, scales) => {
                let rows = rows.map(|row| (&codes[row * k..][..k], scales[row]));
                Input::codes(level, k, rows)
            }
        }
    }
}

fn quantize_all(pool: &Pool, x: &[bf16], rows: usize, k: usize) -> (Vec<i8>, Vec<f32>) {
    let (mut codes, mut scales) = (vec![0; rows * k], vec![0.0; rows]);
    let jobs: Vec<_> = codes
        .chunks_exact_mut(k)
        .zip(&mut scales)
        .zip(x.chunks_exact(k))
        .collect();
    pool.each(x.len(), jobs, |((codes, scale), x)| {
        *scale = quantize_row(pool.level, x, codes)
    });
    (codes, scales)
}

/// Up projection, activation and down projection with their weights.
#[derive(Clone, Copy)]
pub struct Mlp<'a> {
    up: Weights<'a>,
    down: Weights<'a>,
    /// Input width.
    k: usize,
    /// Width between the projections.
    inner: usize,
    /// Output width.
    pub n: usize,
}

impl<'a> Mlp<'a> {
    pub fn of(stages: &MlpStages, memory: &'a Memory<'_>) -> Mlp<'a> {
        Mlp {
            up: stages.up.weights.get(memory),
            down: stages.down.weights.get(memory),
            k: stages.up.k,
            inner: stages.down.k,
            n: stages.down.n,
        }
    }

    /// Multiply-adds of a row.
    pub fn work(&self) -> usize {
        self.inner * (2 * self.k + self.n)
    }

    fn of_expert(self, expert: usize) -> Mlp<'a> {
        Mlp {
            up: self.up.of_expert(expert, 2 * self.inner, self.k),
            down: self.down.of_expert(expert, self.n, self.inner),
            ..self
        }
    }

    fn run(&self, level: Level, input: &Input, out: &mut [&mut [bf16]]) -> Inner {
        let (rows, inner) = (out.len(), self.inner);
        let mut gate_up = vec![bf16::ZERO; rows * 2 * inner];
        let mut up_rows: Vec<&mut [bf16]> = gate_up.chunks_exact_mut(2 * inner).collect();
        project(level, self.up, input, self.k, 0..2 * inner, &mut up_rows);
        let mut activated = vec![bf16::ZERO; rows * inner];
        let halves = gate_up.chunks_exact(2 * inner);
        for (gate_up, activated) in halves.zip(activated.chunks_exact_mut(inner)) {
            silu_mul_row(level, gate_up, activated);
        }
        let activated_rows = activated.chunks_exact(inner);
        let input = match self.down {
            Weights::Bf16(_) => Input::widen(level, activated_rows),
            Weights::W8A8(..) => Input::quantize(level, inner, activated_rows),
        };
        project(level, self.down, &input, inner, 0..self.n, out);
        Inner {
            gate_up,
            activated,
            input,
        }
    }
}

/// What lies between the projections of a job's rows.
struct Inner {
    gate_up: Vec<bf16>,
    activated: Vec<bf16>,
    /// The activated rows as the down projection read them.
    input: Input,
}

/// Whose rows a job computes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Routed,
    Shared,
}

/// Up to 16 rows of one expert.
pub struct Job<'a, 'y> {
    part: Part,
    mlp: Mlp<'a>,
    rows: &'a RowsFor<'a>,
    /// Input rows.
    tokens: Vec<usize>,
    /// First of the output rows.
    first: usize,
    out: Vec<&'y mut [bf16]>,
}

/// What a job leaves for buffers that only its stages see.
pub struct Kept {
    part: Part,
    first: usize,
    inner: Inner,
}

/// One job for every 16 rows of every expert; `y` has one row a live pair.
pub fn expert_jobs<'a, 'y>(
    mlp: Mlp<'a>,
    rows: &'a RowsFor<'a>,
    routes: &Routes,
    k_per_token: usize,
    y: &'y mut [bf16],
) -> Vec<Job<'a, 'y>> {
    let mut y = y.chunks_exact_mut(mlp.n);
    let mut jobs = Vec::new();
    for (expert, w) in routes.offsets.windows(2).enumerate() {
        let (start, end) = (w[0] as usize, w[1] as usize);
        for first in (start..end).step_by(TILE_ROWS) {
            let slots = &routes.slot_of_row[first..end.min(first + TILE_ROWS)];
            jobs.push(Job {
                part: Part::Routed,
                mlp: mlp.of_expert(expert),
                rows,
                tokens: slots
                    .iter()
                    .map(|&slot| slot as usize / k_per_token)
                    .collect(),
                first,
                out: y.by_ref().take(slots.len()).collect(),
            });
        }
    }
    jobs
}

/// One job for every 16 rows of the shared expert.
pub fn shared_jobs<'a, 'y>(
    mlp: Mlp<'a>,
    rows: &'a RowsFor<'a>,
    out: &'y mut [bf16],
) -> Vec<Job<'a, 'y>> {
    let blocks = out.chunks_mut(TILE_ROWS * mlp.n).enumerate();
    blocks
        .map(|(b, out)| Job {
            part: Part::Shared,
            mlp,
            rows,
            tokens: (b * TILE_ROWS..).take(out.len() / mlp.n).collect(),
            first: b * TILE_ROWS,
            out: out.chunks_exact_mut(mlp.n).collect(),
        })
        .collect()
}

impl Job<'_, '_> {
    pub fn run(mut self, level: Level, keep: bool) -> Option<Kept> {
        let input = self.rows.input(level, self.mlp.k, self.tokens.into_iter());
        let inner = self.mlp.run(level, &input, &mut self.out);
        keep.then_some(Kept {
            part: self.part,
            first: self.first,
            inner,
        })
    }
}

/// Stores the rows between the projections of one part's jobs.
pub fn store_inner(stages: &MlpStages, part: Part, kept: &[Kept], memory: &mut Memory<'_>) {
    let width = stages.down.k;
    for Kept { first, inner, .. } in kept.iter().filter(|kept| kept.part == part) {
        let mut put = |buffer, at: usize, rows: &[bf16]| {
            memory.get_mut(buffer)[at..][..rows.len()].copy_from_slice(rows);
        };
        put(stages.silu.gate_up, first * 2 * width, &inner.gate_up);
        put(stages.silu.out, first * width, &inner.activated);
        if let Source::Quantize(op) = &stages.down.source {
            super::quantize_linear::store(op, *first, width, &inner.input, memory);
        }
    }
}

/// Weighted sum of a token's expert rows.
pub fn gather(
    level: Level,
    routes: &Routes,
    weights: &[f32],
    token: usize,
    y: &[bf16],
    out: &mut [bf16],
) {
    let (k, width) = (weights.len(), out.len());
    let slots = routes.row_of_slot[token * k..][..k].iter().zip(weights);
    let experts = slots
        .filter(|(row, _)| **row != NONE)
        .map(|(&row, &weight)| (weight, &y[row as usize * width..][..width]));
    weighted_sum(level, experts, &mut Vec::new(), out);
}

/// Stores routes and expert rows where they are to be kept. Rows past the last pair are zero rows,
/// and so is what becomes of them.
pub fn store_routed(
    stages: &RoutedStages<'_>,
    routes: &Routes,
    y: &[bf16],
    kept: &[Kept],
    memory: &mut Memory<'_>,
) {
    routes.store(stages.prologue, memory);
    for buffer in [
        stages.mlp.silu.gate_up,
        stages.mlp.silu.out,
        stages.gather.y,
    ] {
        memory.get_mut(buffer).fill(bf16::ZERO);
    }
    if let Source::Quantize(op) = &stages.mlp.down.source {
        memory.get_mut(op.codes).fill(0);
        memory
            .get_mut(op.scale)
            .fill(quantize_row(Level::PORTABLE, &[], &mut []));
    }
    memory.get_mut(stages.gather.y)[..y.len()].copy_from_slice(y);
    store_inner(&stages.mlp, Part::Routed, kept, memory);
}

/// Stores the codes of the rows that entered the layer.
pub fn store_quantised(
    sources: &[&Source],
    (codes, scales): &(Vec<i8>, Vec<f32>),
    memory: &mut Memory<'_>,
) {
    for source in sources {
        if let Source::Quantize(QuantizeRows {
            codes: codes_out,
            scale: scale_out,
            ..
        }) = source
        {
            memory.get_mut(*codes_out).copy_from_slice(codes);
            memory.get_mut(*scale_out).copy_from_slice(scales);
        }
    }
}

/// Number of experts of a grouped linear.
pub fn expert_count(weights: WeightBufs, memory: &Memory<'_>) -> usize {
    let [experts, _, _] = match weights {
        WeightBufs::Bf16(weight) => memory.dims(weight),
        WeightBufs::W8A8(weight, _) => memory.dims(weight),
    };
    experts
}
