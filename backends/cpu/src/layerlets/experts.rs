//! What the two mixture-of-experts kernels share: the rows of all experts, the shared one among them,
//! as two lists of jobs. A job of the first is some rows of one expert and some columns between its
//! projections, from codes to activation; a job of the second is some rows and columns of its output.
//!
//! Fast because every thread finds work until the last column: a decode step has nine experts of one
//! row, which no whole number of threads divides. Tokens are gathered by number; nothing is permuted.

use super::stages::{MlpStages, Source, WeightBufs, find, grouped};
use crate::arena::zeros;
use crate::expert_prologue::Routes;
use crate::level::Level;
use crate::linear::{Form, Input, TILE_ROWS, Weights, project};
use crate::pool::Pool;
use crate::quantize_rows::quantize_row;
use crate::silu_mul::silu_mul_row;
use crate::tiles::{Tile, tiles};
use crate::weighted_gather::weighted_sum;
use layerlet_core::NONE;
use layerlet_core::buffer::Buf;
use layerlet_core::launch::Launch;
use layerlet_core::memory::Memory;
use layerlet_core::numerics::bf16;
use layerlet_core::ops::{ExpertPrologue, QuantizeRows, WeightedGather};
use std::mem::take;
use std::sync::{Mutex, PoisonError};

/// Columns of a job are multiples of this: a cache line of outputs.
const COLUMN_STEP: usize = 32;

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

/// Codes and scales of rows.
#[derive(Clone, Copy, Default)]
pub struct Quantised<'b> {
    pub codes: &'b [i8],
    pub scales: &'b [f32],
}

impl<'b> Quantised<'b> {
    fn of(pool: &'b Pool, x: &[bf16], k: usize) -> Quantised<'b> {
        let level = pool.level;
        let codes = zeros(pool.arena(), x.len());
        let scales = zeros(pool.arena(), x.len() / k);
        let rows = codes.chunks_exact_mut(k).zip(scales.iter_mut());
        let jobs = pool.list(rows.zip(x.chunks_exact(k)));
        pool.each(x.len(), jobs, |((codes, scale), x)| {
            **scale = quantize_row(level, x, codes);
        });
        Quantised { codes, scales }
    }
}

/// The rows that enter a layer, in the forms that its linears read.
pub struct Rows<'b> {
    x: &'b [bf16],
    /// Of all rows, if any linear wants them computed here.
    quantised: Quantised<'b>,
}

/// Where one linear takes the rows of [`Rows`] from.
#[derive(Clone, Copy)]
pub enum RowsFor<'b> {
    Bf16(&'b [bf16]),
    Codes(Quantised<'b>),
}

impl<'b> Rows<'b> {
    /// `None` where the sources are not all the same rows.
    pub fn new(sources: &[&Source], pool: &'b Pool, memory: &'b Memory<'_>) -> Option<Rows<'b>> {
        let of = |source: &&Source| match source {
            Source::Bf16(x) => Some(*x),
            Source::Quantize(op) => Some(op.x),
            Source::Codes(..) => None,
        };
        let mut used = sources.iter().filter_map(of);
        let Some(x) = used.next() else {
            return Some(Rows {
                x: &[],
                quantised: Quantised::default(),
            });
        };
        if used.any(|other| other != x) {
            return None;
        }
        let [_, k] = memory.dims(x);
        let x = memory.get(x);
        let quantised = match sources.iter().any(|s| matches!(s, Source::Quantize(_))) {
            true => Quantised::of(pool, x, k),
            false => Quantised::default(),
        };
        Some(Rows { x, quantised })
    }

    /// Codes and scales that were computed here.
    pub fn to_quantised(&self) -> (Vec<i8>, Vec<f32>) {
        (
            self.quantised.codes.to_vec(),
            self.quantised.scales.to_vec(),
        )
    }

    /// The rows as one linear reads them.
    pub fn view(&self, source: &Source, memory: &'b Memory<'_>) -> RowsFor<'b> {
        match *source {
            Source::Bf16(_) => RowsFor::Bf16(self.x),
            Source::Quantize(_) => RowsFor::Codes(self.quantised),
            Source::Codes(codes, scale) => RowsFor::Codes(Quantised {
                codes: memory.get(codes),
                scales: memory.get(scale),
            }),
        }
    }
}

impl RowsFor<'_> {
    /// Adds one of the rows, of width `k`.
    pub fn push(&self, k: usize, row: usize, input: &mut Input<'_>) {
        match self {
            RowsFor::Bf16(x) => input.push(&x[row * k..][..k]),
            RowsFor::Codes(Quantised { codes, scales }) => {
                input.push_codes(&codes[row * k..][..k], scales[row]);
            }
        }
    }
}

/// Up projection, activation and down projection with their weights, of one expert or of all.
#[derive(Clone, Copy)]
pub struct Mlp<'a> {
    up: Weights<'a>,
    down: Weights<'a>,
    /// Input width.
    k: usize,
    /// Width between the projections.
    pub inner: usize,
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

    fn of_expert(self, expert: usize) -> Mlp<'a> {
        Mlp {
            up: self.up.of_expert(expert, 2 * self.inner, self.k),
            down: self.down.of_expert(expert, self.n, self.inner),
            ..self
        }
    }
}

/// Consecutive rows of one expert.
#[derive(Clone, Copy)]
struct Group<'b> {
    mlp: Mlp<'b>,
    input: RowsFor<'b>,
    /// Token of each row; `None`: the rows are the tokens.
    slots: Option<&'b [u32]>,
    k_per_token: usize,
    /// First of the rows among the rows of its part.
    first: usize,
    rows: usize,
}

impl Group<'_> {
    fn push_rows(&self, input: &mut Input<'_>) {
        input.clear();
        for row in 0..self.rows {
            let token = match self.slots {
                Some(slots) => slots[row] as usize / self.k_per_token,
                None => self.first + row,
            };
            self.input.push(self.mlp.k, token, input);
        }
    }
}

/// All rows of the routed experts, or of the shared one.
pub struct Part<'b> {
    mlp: Mlp<'b>,
    groups: &'b [Group<'b>],
    rows: usize,
    /// `[rows, inner]`
    activated: &'b [bf16],
    /// The activated rows as a W8A8 down projection reads them.
    quantised: Quantised<'b>,
    /// `[rows, n]`
    pub y: &'b [bf16],
}

impl<'b> Part<'b> {
    /// The routed experts: one row a live pair.
    pub fn routed(
        pool: &'b Pool,
        mlp: Mlp<'b>,
        input: RowsFor<'b>,
        routes: &Routes<'b>,
        k_per_token: usize,
    ) -> Part<'b> {
        let slot_of_row = routes.slot_of_row;
        let experts = routes.offsets.windows(2).enumerate();
        let groups = experts.flat_map(|(expert, w)| {
            let (start, end) = (w[0] as usize, w[1] as usize);
            (start..end).step_by(TILE_ROWS).map(move |first| {
                let slots = &slot_of_row[first..end.min(first + TILE_ROWS)];
                Group {
                    mlp: mlp.of_expert(expert),
                    input,
                    slots: Some(slots),
                    k_per_token,
                    first,
                    rows: slots.len(),
                }
            })
        });
        Part::new(mlp, slot_of_row.len(), pool.list(groups))
    }

    /// The shared expert: one row a token.
    pub fn shared(pool: &'b Pool, mlp: Mlp<'b>, input: RowsFor<'b>, tokens: usize) -> Part<'b> {
        let groups = (0..tokens).step_by(TILE_ROWS).map(|first| Group {
            mlp,
            input,
            slots: None,
            k_per_token: 1,
            first,
            rows: TILE_ROWS.min(tokens - first),
        });
        Part::new(mlp, tokens, pool.list(groups))
    }

    fn new(mlp: Mlp<'b>, rows: usize, groups: &'b [Group<'b>]) -> Part<'b> {
        Part {
            mlp,
            groups,
            rows,
            activated: &[],
            quantised: Quantised::default(),
            y: &[],
        }
    }

    /// The activated rows as the down projection reads them.
    fn activated(&self) -> RowsFor<'b> {
        match self.mlp.down.form() {
            Form::Wide => RowsFor::Bf16(self.activated),
            Form::Codes => RowsFor::Codes(self.quantised),
        }
    }

    fn work(&self) -> usize {
        self.rows * self.mlp.inner * (2 * self.mlp.k + self.mlp.n)
    }

    /// Room for the rows of the largest group, as `form` asks.
    fn room(&self, pool: &'b Pool, form: Form, k: usize) -> Input<'b> {
        let rows = self.groups.iter().map(|g| g.rows).max();
        Input::room(pool, form, rows.unwrap_or(0), k)
    }
}

/// Some rows and columns of one group's activation or output.
struct Job<'b> {
    /// Number of the part.
    part: usize,
    group: Group<'b>,
    out: Tile<'b, 'b, bf16>,
}

/// What lay between and behind a part's projections, for buffers that only the stages see.
#[derive(Default)]
pub struct Kept {
    gate_up: Vec<bf16>,
    activated: Vec<bf16>,
    codes: Vec<i8>,
    scales: Vec<f32>,
    y: Vec<bf16>,
}

/// Runs all parts; with `keep`, returns what each of them leaves, else nothing.
pub fn run_parts<'b>(pool: &'b Pool, parts: &mut [Part<'b>], keep: bool) -> Vec<Kept> {
    let work = parts.iter().map(Part::work).sum();
    let gate_up = activate(pool, work, parts, keep);
    for part in parts
        .iter_mut()
        .filter(|p| p.mlp.down.form() == Form::Codes)
    {
        part.quantised = Quantised::of(pool, part.activated, part.mlp.inner);
    }
    project_down(pool, work, parts);
    let kept = gate_up.into_iter().zip(parts).map(|(gate_up, part)| Kept {
        gate_up,
        activated: part.activated.to_vec(),
        codes: part.quantised.codes.to_vec(),
        scales: part.quantised.scales.to_vec(),
        y: part.y.to_vec(),
    });
    kept.collect()
}

/// Cuts a matrix of each part, whose width `of` tells, by groups and columns.
fn cut<'b>(
    pool: &'b Pool,
    work: usize,
    parts: &[Part<'b>],
    matrices: &'b mut [&mut [bf16]],
    of: impl Fn(&Mlp<'_>) -> usize,
) -> &'b mut [Job<'b>] {
    let groups: usize = parts.iter().map(|p| p.groups.len()).sum();
    let cuts = (2 * pool.jobs_for(work)).div_ceil(groups.max(1));
    let numbered = parts.iter().zip(matrices).enumerate();
    let jobs = numbered.flat_map(|(part, (p, matrix))| {
        let width = of(&p.mlp);
        let columns = width.div_ceil(cuts).max(1).next_multiple_of(COLUMN_STEP);
        let mut rest: &mut [bf16] = matrix;
        p.groups.iter().flat_map(move |group| {
            let (own, others) = take(&mut rest).split_at_mut(group.rows * width);
            rest = others;
            let tiles = tiles(pool.arena(), own, width, TILE_ROWS, columns);
            tiles.map(move |out| Job {
                part,
                group: *group,
                out,
            })
        })
    });
    pool.list(jobs)
}

/// What a thread has to itself while it activates.
struct Activation<'b> {
    /// One for each part.
    inputs: &'b mut [Input<'b>],
    /// Gate and up columns of a job, side by side, row by row.
    gate_up: &'b mut [bf16],
}

/// Up projection and activation of all parts. With `keep`, returns the projections.
fn activate<'b>(pool: &'b Pool, work: usize, parts: &mut [Part<'b>], keep: bool) -> Vec<Vec<bf16>> {
    let level = pool.level;
    let projected = parts.iter().filter(|_| keep);
    let projected = projected.map(|p| vec![bf16::ZERO; p.rows * 2 * p.mlp.inner]);
    let projected = Mutex::new(projected.collect::<Vec<_>>());
    let size = |p: &Part<'b>| p.rows * p.mlp.inner;
    let matrices = pool.list(parts.iter().map(|p| zeros(pool.arena(), size(p))));
    let jobs = cut(pool, work, parts, matrices, |mlp| mlp.inner);
    let columns = jobs.iter().map(|job| job.out.width()).max().unwrap_or(0);
    let input = |p: &Part<'b>| p.room(pool, p.mlp.up.form(), p.mlp.k);
    let room = || Activation {
        inputs: pool.list(parts.iter().map(input)),
        gate_up: zeros(pool.arena(), TILE_ROWS * 2 * columns),
    };
    pool.each_with(work, jobs, room, |job, own| {
        let gate_up = job.activate(level, own);
        if keep {
            let mut projected = projected.lock().unwrap_or_else(PoisonError::into_inner);
            job.store(gate_up, &mut projected[job.part]);
        }
    });
    for (part, matrix) in parts.iter_mut().zip(matrices) {
        let matrix: &'b mut [bf16] = take(matrix);
        part.activated = matrix;
    }
    projected
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
}

/// Down projection of all parts.
fn project_down<'b>(pool: &'b Pool, work: usize, parts: &mut [Part<'b>]) {
    let size = |p: &Part<'b>| p.rows * p.mlp.n;
    let matrices = pool.list(parts.iter().map(|p| zeros(pool.arena(), size(p))));
    let jobs = cut(pool, work, parts, matrices, |mlp| mlp.n);
    let input = |p: &Part<'b>| p.room(pool, p.mlp.down.form(), p.mlp.inner);
    let room = || pool.list(parts.iter().map(input));
    let rows = pool.list(parts.iter().map(Part::activated));
    pool.each_with(work, jobs, room, |job, inputs| {
        let (group, input) = (job.group, &mut inputs[job.part]);
        input.clear();
        for row in group.first..group.first + group.rows {
            rows[job.part].push(group.mlp.inner, row, input);
        }
        let columns = job.out.column..job.out.column + job.out.width();
        project(group.mlp.down, input, columns, job.out.rows);
    });
    for (part, matrix) in parts.iter_mut().zip(matrices) {
        let matrix: &'b mut [bf16] = take(matrix);
        part.y = matrix;
    }
}

impl Job<'_> {
    /// Projects up and activates; returns gate and up columns, side by side, row by row.
    fn activate<'s>(&mut self, level: Level, own: &'s mut Activation<'_>) -> &'s [bf16] {
        let (group, mlp, width) = (self.group, self.group.mlp, self.out.width());
        let input = &mut own.inputs[self.part];
        group.push_rows(input);
        let strip = &mut own.gate_up[..group.rows * 2 * width];
        let empty = || std::array::from_fn::<&mut [bf16], TILE_ROWS, _>(|_| Default::default());
        let (mut gates, mut ups) = (empty(), empty());
        let halves = gates.iter_mut().zip(&mut ups);
        for ((gate, up), row) in halves.zip(strip.chunks_exact_mut(2 * width)) {
            (*gate, *up) = row.split_at_mut(width);
        }
        let columns = self.out.column..self.out.column + width;
        let up_columns = mlp.inner + columns.start..mlp.inner + columns.end;
        project(mlp.up, input, columns, &mut gates[..group.rows]);
        project(mlp.up, input, up_columns, &mut ups[..group.rows]);
        for (row, activated) in strip.chunks_exact(2 * width).zip(&mut *self.out.rows) {
            silu_mul_row(level, row, activated);
        }
        strip
    }

    /// Puts gate and up columns where the up projection of the whole part has them.
    fn store(&self, gate_up: &[bf16], projected: &mut [bf16]) {
        let (inner, width) = (self.group.mlp.inner, self.out.width());
        let rows = projected[self.group.first * 2 * inner..].chunks_exact_mut(2 * inner);
        for (strip, row) in gate_up.chunks_exact(2 * width).zip(rows) {
            let (gate, up) = strip.split_at(width);
            row[self.out.column..][..width].copy_from_slice(gate);
            row[inner + self.out.column..][..width].copy_from_slice(up);
        }
    }
}

/// Stores what a part left where its stages would have.
pub fn store_part(stages: &MlpStages, kept: &Kept, memory: &mut Memory<'_>) {
    let mut put = |buffer, rows: &[bf16]| {
        memory.get_mut(buffer)[..rows.len()].copy_from_slice(rows);
    };
    put(stages.silu.gate_up, &kept.gate_up);
    put(stages.silu.out, &kept.activated);
    put(stages.down.out, &kept.y);
    if let Source::Quantize(op) = &stages.down.source {
        memory.get_mut(op.codes)[..kept.codes.len()].copy_from_slice(&kept.codes);
        memory.get_mut(op.scale)[..kept.scales.len()].copy_from_slice(&kept.scales);
    }
}

/// Weighted sum of a token's expert rows; `sum` is room for one row.
pub fn gather(
    level: Level,
    routes: &Routes<'_>,
    weights: &[f32],
    token: usize,
    y: &[bf16],
    sum: &mut [f32],
    out: &mut [bf16],
) {
    let (k, width) = (weights.len(), out.len());
    let slots = routes.row_of_slot[token * k..][..k].iter().zip(weights);
    let experts = slots
        .filter(|(row, _)| **row != NONE)
        .map(|(&row, &weight)| (weight, &y[row as usize * width..][..width]));
    weighted_sum(level, experts, sum, out);
}

/// Stores routes and expert rows where they are to be kept. Rows past the last pair are zero rows,
/// and so is what becomes of them.
pub fn store_routed(
    stages: &RoutedStages<'_>,
    routes: &Routes<'_>,
    kept: &Kept,
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
    store_part(&stages.mlp, kept, memory);
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
