//! Attention from projections to gated output: fast because queries are normalised and rotated by the
//! thread that attends with them, and keys on their way into the cache.

use super::stages::find;
use crate::arena::zeros;
use crate::level::Level;
use crate::paged_attention::Context;
use crate::pool::Pool;
use crate::rms_norm::rms_norm_row;
use crate::rope::Angles;
use layerlet_core::NONE;
use layerlet_core::launch::Fused;
use layerlet_core::memory::Memory;
use layerlet_core::numerics::bf16;
use layerlet_core::ops::{KvAppend, PagedAttention, RmsNorm, Rope};

struct Stages<'a> {
    q_norm: &'a RmsNorm,
    k_norm: &'a RmsNorm,
    q_rope: &'a Rope,
    k_rope: &'a Rope,
    append: &'a KvAppend,
    attention: &'a PagedAttention,
}

fn recognise(fused: &Fused) -> Option<Stages<'_>> {
    let stages = &fused.stages;
    let attention = find!(stages, PagedAttention(op))?;
    let append = find!(stages, KvAppend(op)
        if op.k_cache == attention.k_cache
            && op.v_cache == attention.v_cache
            && op.positions == attention.positions
            && op.row_seq == attention.row_seq
            && op.page_table == attention.page_table)?;
    let rope_of =
        |out| find!(stages, Rope(op) if op.out == out && op.positions == append.positions);
    let (q_rope, k_rope) = (rope_of(attention.q)?, rope_of(append.k)?);
    let norm_of = |out| find!(stages, RmsNorm(op) if op.out == out);
    let (q_norm, k_norm) = (norm_of(q_rope.x)?, norm_of(k_rope.x)?);
    (stages.len() == 6).then_some(Stages {
        q_norm,
        k_norm,
        q_rope,
        k_rope,
        append,
        attention,
    })
}

/// Norm and rotation of heads: what becomes of a projection before it is a query or a key.
struct Heads<'a> {
    norm: &'a RmsNorm,
    x: &'a [bf16],
    weight: &'a [f32],
    angles: Angles<'a>,
    level: Level,
}

impl<'a> Heads<'a> {
    fn of(level: Level, norm: &'a RmsNorm, rope: &Rope, memory: &'a Memory<'_>) -> Self {
        let [_, _, half] = memory.dims(rope.table);
        Heads {
            norm,
            x: memory.get(norm.x),
            weight: memory.get(norm.weight),
            angles: Angles {
                table: memory.get(rope.table),
                half,
            },
            level,
        }
    }

    /// Norms heads `first..`, counted through all rows, into `out`.
    fn normalise(&self, first: usize, out: &mut [bf16]) {
        let width = self.weight.len();
        for (i, out) in out.chunks_exact_mut(width).enumerate() {
            let x = &self.x[(first + i) * self.norm.stride..][..width];
            rms_norm_row(
                self.level,
                x,
                self.weight,
                self.norm.eps,
                self.norm.offset,
                out,
            );
        }
    }

    fn rotate(&self, position: u32, heads: &mut [bf16]) {
        for head in heads.chunks_exact_mut(self.weight.len()) {
            self.angles.rotate(self.level, position, head);
        }
    }
}

/// `None`: not stages that this kernel knows, or positions or pages out of range.
pub fn run(fused: &Fused, pool: &Pool, memory: &mut Memory<'_>) -> Option<()> {
    let level = pool.level;
    let stages = recognise(fused)?;
    let [_, q_width] = memory.dims(stages.attention.q);
    let [_, k_width] = memory.dims(stages.append.k);
    let [angles, _, _] = memory.dims(stages.q_rope.table);
    let positions = memory.get(stages.append.positions);
    let widths_fit = [
        (stages.q_norm, stages.q_rope),
        (stages.k_norm, stages.k_rope),
    ]
    .iter()
    .all(|(norm, rope)| memory.dims(norm.weight) == [rope.head_dim])
        && stages.q_rope.table == stages.k_rope.table;
    let in_table = positions.iter().all(|&p| (p as usize) < angles);
    let context = Context::of(stages.attention, memory);
    if !(widths_fit && in_table && context.is_valid() && context.places_are_distinct(pool)) {
        return None;
    }

    let keep = fused.keep_intermediates;
    let keys = rows_of(pool, stages.k_norm, stages.k_rope, k_width, keep, memory);
    append(stages.append, keys, k_width, memory);
    if keep {
        memory.get_mut(stages.k_rope.out).copy_from_slice(keys);
        let queries = rows_of(pool, stages.q_norm, stages.q_rope, q_width, keep, memory);
        memory.get_mut(stages.q_rope.out).copy_from_slice(queries);
    }

    let mut out = memory.take(stages.attention.out);
    let context = Context::of(stages.attention, memory);
    let heads = Heads::of(level, stages.q_norm, stages.q_rope, memory);
    let positions = memory.get(stages.append.positions);
    let row_heads = q_width / heads.weight.len();
    context.run(pool, &mut out, |row, key_head, queries| {
        let group = queries.len() / heads.weight.len();
        heads.normalise(row * row_heads + key_head * group, queries);
        heads.rotate(positions[row], queries);
    });
    memory.put(stages.attention.out, out);
    Some(())
}

/// Normalised and rotated heads of all rows; stores the normalised ones where they are kept.
fn rows_of<'b>(
    pool: &'b Pool,
    norm: &RmsNorm,
    rope: &Rope,
    width: usize,
    keep: bool,
    memory: &mut Memory<'_>,
) -> &'b [bf16] {
    let level = pool.level;
    let rows = zeros(pool.arena(), memory.get(rope.positions).len() * width);
    let heads = Heads::of(level, norm, rope, memory);
    let row_heads = width / heads.weight.len();
    pool.rows(3 * width, rows, width, |row, out| {
        heads.normalise(row * row_heads, out);
    });
    if keep {
        memory.get_mut(norm.out).copy_from_slice(rows);
    }
    let heads = Heads::of(level, norm, rope, memory);
    let positions = memory.get(rope.positions);
    pool.rows(width, rows, width, |row, out| {
        heads.rotate(positions[row], out)
    });
    rows
}

/// Puts keys and values of live rows into their pages.
fn append(op: &KvAppend, keys: &[bf16], width: usize, memory: &mut Memory<'_>) {
    let [_, page_size, _, _] = memory.dims(op.k_cache);
    let [_, per_sequence] = memory.dims(op.page_table);
    let (mut k_cache, mut v_cache) = (memory.take(op.k_cache), memory.take(op.v_cache));
    let values = memory.get(op.v);
    let (row_seq, positions) = (memory.get(op.row_seq), memory.get(op.positions));
    let table = memory.get(op.page_table);
    for (row, (&seq, &position)) in row_seq.iter().zip(positions).enumerate() {
        if seq == NONE {
            continue;
        }
        let position = position as usize;
        let page = table[seq as usize * per_sequence + position / page_size] as usize;
        let at = (page * page_size + position % page_size) * width;
        k_cache[at..][..width].copy_from_slice(&keys[row * width..][..width]);
        v_cache[at..][..width].copy_from_slice(&values[row * width..][..width]);
    }
    memory.put(op.k_cache, k_cache);
    memory.put(op.v_cache, v_cache);
}
