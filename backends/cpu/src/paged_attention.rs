//! Fast because all query heads of a key head run together: each key of a block is met by every
//! query while it is in the nearest cache, each 16 columns of the block's values are widened once
//! for all of them, and exp of a block's scores is vector code.

use crate::arena::zeros;
use crate::level::{Level, per_level};
use crate::pool::Pool;
use crate::vector::{COLUMNS, Terms, column_sum, dot, sum, widen, widen_row};
use layerlet_core::NONE;
use layerlet_core::launch::{LaunchError, Operation};
use layerlet_core::memory::Memory;
use layerlet_core::numerics::{bf16, exp, round_bf16, sigmoid};
use layerlet_core::ops::PagedAttention;

/// Positions of a block of the contract.
const BLOCK: usize = 64;

/// An attention launch without its queries.
pub struct Context<'a> {
    k: &'a [bf16],
    v: &'a [bf16],
    pages: usize,
    page_size: usize,
    heads: usize,
    dim: usize,
    positions: &'a [u32],
    row_seq: &'a [u32],
    page_table: &'a [u32],
    /// Pages of a sequence in the table.
    per_sequence: usize,
    q_gate: &'a [bf16],
    scale: f32,
}

impl<'a> Context<'a> {
    /// The operands of a launch.
    pub fn of(op: &PagedAttention, memory: &'a Memory<'_>) -> Self {
        let [pages, page_size, heads, dim] = memory.dims(op.k_cache);
        let [_, per_sequence] = memory.dims(op.page_table);
        Context {
            k: memory.get(op.k_cache),
            v: memory.get(op.v_cache),
            pages,
            page_size,
            heads,
            dim,
            positions: memory.get(op.positions),
            row_seq: memory.get(op.row_seq),
            page_table: memory.get(op.page_table),
            per_sequence,
            q_gate: memory.get(op.q_gate),
            scale: op.scale,
        }
    }

    /// Whether every position that a live row attends to lies in a page; where not, the definition
    /// names the fault.
    pub fn is_valid(&self) -> bool {
        let sequences = self.page_table.len() / self.per_sequence.max(1);
        let mut rows = self.positions.iter().zip(self.row_seq);
        rows.all(|(&position, &seq)| {
            let in_table = |seq: usize| {
                let used = self
                    .sequence_pages(seq)
                    .get(..=position as usize / self.page_size);
                used.is_some_and(|used| used.iter().all(|&page| (page as usize) < self.pages))
            };
            seq == NONE || ((seq as usize) < sequences && in_table(seq as usize))
        })
    }

    /// Whether every live row has a place of its own in the caches, where all are valid.
    pub fn places_are_distinct(&self, pool: &Pool) -> bool {
        let rows = self.row_seq.iter().zip(self.positions);
        let live = rows.filter(|(seq, _)| **seq != NONE);
        let place =
            |(&seq, &p): (&u32, &u32)| self.at(self.sequence_pages(seq as usize), p as usize, 0);
        let places = pool.list(live.map(place));
        places.sort_unstable();
        places.windows(2).all(|w| w[0] != w[1])
    }

    fn sequence_pages(&self, sequence: usize) -> &[u32] {
        &self.page_table[sequence * self.per_sequence..][..self.per_sequence]
    }

    /// Where the head of a position starts in the caches.
    fn at(&self, pages: &[u32], position: usize, head: usize) -> usize {
        let page = pages[position / self.page_size] as usize;
        let row = page * self.page_size + position % self.page_size;
        (row * self.heads + head) * self.dim
    }

    /// Attends with every row; `query(row, head, q)` makes the queries of a key head.
    pub fn run(
        &self,
        pool: &Pool,
        out: &mut [bf16],
        query: impl Fn(usize, usize, &mut [bf16]) + Sync,
    ) {
        let part = out.len() / (self.positions.len() * self.heads).max(1);
        if part == 0 {
            return;
        }
        let live = self
            .positions
            .iter()
            .zip(self.row_seq)
            .filter(|(_, seq)| **seq != NONE);
        let attended: usize = live.map(|(&position, _)| position as usize + 1).sum();
        let work = attended.saturating_mul(2 * part * self.heads);
        let jobs = pool.list(out.chunks_exact_mut(part).enumerate());
        let room = || Attention::room(pool, part / self.dim, self.dim);
        pool.each_with(work, jobs, room, |(i, out), own| {
            let (row, head) = (*i / self.heads, *i % self.heads);
            match self.row_seq[row] {
                NONE => out.fill(bf16::ZERO),
                _ => {
                    query(row, head, out);
                    own.attend(self, row, head, out);
                }
            }
        });
    }
}

/// Scratch of one thread, for all query heads of one key head.
pub struct Attention<'b> {
    level: Level,
    /// Widened queries, `[group, dim]`.
    q: &'b mut [f32],
    scores: &'b mut [[f32; BLOCK]],
    /// Values of a block in the columns at hand.
    values: &'b mut [[f32; COLUMNS]],
    /// Maximum and sum of each query.
    folded: &'b mut [(f32, f32)],
    /// What each query does with the block at hand.
    folds: &'b mut [Fold],
    /// Weighted values, `[group, dim]`.
    out: &'b mut [f32],
}

/// What a block scales the fold so far and itself by.
#[derive(Clone, Copy)]
struct Fold {
    old: f32,
    new: f32,
    /// There is no fold so far.
    first: bool,
}

impl Fold {
    const FIRST: Fold = Fold {
        old: 0.0,
        new: 1.0,
        first: true,
    };
}

impl<'b> Attention<'b> {
    fn room(pool: &'b Pool, group: usize, dim: usize) -> Attention<'b> {
        let arena = pool.arena();
        Attention {
            level: pool.level,
            q: zeros(arena, group * dim),
            scores: arena.alloc_slice_fill_copy(group, [0.0; BLOCK]),
            values: arena.alloc_slice_fill_copy(BLOCK, [0.0; COLUMNS]),
            folded: arena.alloc_slice_fill_copy(group, (0.0, 0.0)),
            folds: arena.alloc_slice_fill_copy(group, Fold::FIRST),
            out: zeros(arena, group * dim),
        }
    }

    /// `out` holds the queries of one key head and gets what they attend to.
    fn attend(&mut self, context: &Context<'_>, row: usize, head: usize, out: &mut [bf16]) {
        let (level, dim) = (self.level, context.dim);
        widen_queries(level, out, self.q);
        let pages = context.sequence_pages(context.row_seq[row] as usize);
        let position = context.positions[row] as usize;
        for first in (0..=position).step_by(BLOCK) {
            let mut rows = [0; BLOCK];
            let rows = &mut rows[..BLOCK.min(position + 1 - first)];
            for (j, at) in rows.iter_mut().enumerate() {
                *at = context.at(pages, first + j, head);
            }
            self.block(context, rows, first == 0);
        }
        let gates = (row * context.heads + head) * 2 * out.len();
        let gates = context.q_gate[gates..].chunks_exact(2 * dim);
        let heads = out.chunks_exact_mut(dim).zip(self.out.chunks_exact(dim));
        for (((out, acc), gate), &(_, l)) in heads.zip(gates).zip(&*self.folded) {
            gate_head(level, acc, l, &gate[dim..], out);
        }
    }

    fn block(&mut self, context: &Context<'_>, rows: &[usize], first: bool) {
        let (level, dim, live) = (self.level, context.dim, rows.len());
        score_block(level, context.k, rows, context.scale, self.q, self.scores);
        let scores = self.scores.iter_mut().zip(&mut *self.folded);
        for ((scores, folded), fold) in scores.zip(&mut *self.folds) {
            *fold = fold_block(level, &mut scores[..live], folded, first);
        }
        for column in (0..dim).step_by(COLUMNS) {
            let width = COLUMNS.min(dim - column);
            for (values, &at) in self.values.iter_mut().zip(rows) {
                for (value, &v) in values.iter_mut().zip(&context.v[at + column..][..width]) {
                    *value = widen(v);
                }
            }
            let queries = self.scores.iter().zip(&*self.folds);
            for ((weights, fold), out) in queries.zip(self.out.chunks_exact_mut(dim)) {
                let out = &mut out[column..][..width];
                add_values(level, &weights[..live], self.values, fold, out);
            }
        }
    }
}

/// Values of a block, weighted.
struct Weighted<'a> {
    weights: &'a [f32],
    values: &'a [[f32; COLUMNS]],
}

impl Terms for Weighted<'_> {
    #[inline(always)]
    fn row(&mut self, j: usize) -> [f32; COLUMNS] {
        let weight = self.weights[j];
        self.values[j].map(|v| weight * v)
    }
}

per_level! {
    fn widen_queries(q: &[bf16], wide: &mut [f32]) {
        widen_row(q, wide);
    }

    /// Scores of a block: each key meets every query while it is in the nearest cache.
    fn score_block(
        k: &[bf16], rows: &[usize], scale: f32, q: &[f32], scores: &mut [[f32; BLOCK]],
    ) {
        let dim = q.len() / scores.len();
        for (j, &at) in rows.iter().enumerate() {
            let k = &k[at..][..dim];
            for (q, scores) in q.chunks_exact(dim).zip(&mut *scores) {
                scores[j] = dot(q, k) * scale;
            }
        }
    }

    /// Turns a block's scores into weights and folds its maximum and sum into those so far.
    fn fold_block(scores: &mut [f32], folded: &mut (f32, f32), first: bool) -> Fold {
        let max = scores
            .iter()
            .fold(f32::NEG_INFINITY, |m, &s| if s > m { s } else { m });
        scores.iter_mut().for_each(|s| *s = exp(*s - max));
        let l = sum(scores);
        if first {
            *folded = (max, l);
            return Fold::FIRST;
        }
        let joint = if max > folded.0 { max } else { folded.0 };
        let old = exp(folded.0 - joint);
        let new = exp(max - joint);
        *folded = (joint, folded.1 * old + l * new);
        Fold { old, new, first }
    }

    /// Folds the weighted values of a block into some columns of a query's output.
    fn add_values(weights: &[f32], values: &[[f32; COLUMNS]], fold: &Fold, out: &mut [f32]) {
        let values = &values[..weights.len()];
        let sums = column_sum(weights.len(), &mut Weighted { weights, values });
        for (out, sum) in out.iter_mut().zip(sums) {
            *out = match fold.first {
                true => sum,
                false => *out * fold.old + sum * fold.new,
            };
        }
    }

    /// Output of one query head: the quotient, then its gate.
    fn gate_head(acc: &[f32], l: f32, gate: &[bf16], out: &mut [bf16]) {
        for ((out, &acc), &gate) in out.iter_mut().zip(acc).zip(gate) {
            let gate = round_bf16(sigmoid(widen(gate)));
            *out = round_bf16(widen(round_bf16(acc / l)) * widen(gate));
        }
    }
}

/// The operation.
pub fn run(op: &PagedAttention, pool: &Pool, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
    if !Context::of(op, memory).is_valid() {
        return op.run(memory);
    }
    let mut out = memory.take(op.out);
    let context = Context::of(op, memory);
    let q = memory.get(op.q);
    context.run(pool, &mut out, |row, head, queries| {
        let at = (row * context.heads + head) * queries.len();
        queries.copy_from_slice(&q[at..][..queries.len()]);
    });
    memory.put(op.out, out);
    Ok(())
}
