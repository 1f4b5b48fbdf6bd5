//! The gated delta net from convolution to gated norm: fast because a thread carries one key head of
//! one sequence through all four stages, a chunk of rows at a time, so that nothing between the
//! projections and the normed output is ever stored.

use super::stages::find;
use crate::arena::zeros;
use crate::causal_conv1d::{self, Taps, supports};
use crate::delta_gates::gate_rows;
use crate::gated_delta_rule::{self, CHUNK, Heads, Job, Recurrence, Strided, ValueRows, jobs};
use crate::gated_rms_norm::gated_rms_norm_row;
use crate::level::Level;
use crate::pool::Pool;
use layerlet_core::launch::Fused;
use layerlet_core::memory::Memory;
use layerlet_core::numerics::bf16;
use layerlet_core::ops::{CausalConv1d, DeltaGates, GatedDeltaRule, GatedRmsNorm};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

struct Stages<'a> {
    conv: &'a CausalConv1d,
    gates: &'a DeltaGates,
    rule: &'a GatedDeltaRule,
    norm: &'a GatedRmsNorm,
}

fn recognise(fused: &Fused) -> Option<Stages<'_>> {
    let stages = &fused.stages;
    let rule = find!(stages, GatedDeltaRule(op))?;
    let conv = find!(stages, CausalConv1d(op)
        if op.out == rule.qkv
            && op.seq_rows == rule.seq_rows
            && op.state_read == rule.state_read
            && op.state_write == rule.state_write)?;
    let gates = find!(stages, DeltaGates(op) if op.decay == rule.decay && op.beta == rule.beta)?;
    let norm = find!(stages, GatedRmsNorm(op) if op.x == rule.out)?;
    (stages.len() == 4).then_some(Stages {
        conv,
        gates,
        rule,
        norm,
    })
}

/// The operands that jobs read.
struct Inputs<'a> {
    heads: Heads,
    rule: &'a GatedDeltaRule,
    taps: Taps<'a>,
    conv_weight: &'a [f32],
    a: &'a [bf16],
    b: &'a [bf16],
    a_log: &'a [f32],
    dt_bias: &'a [f32],
    gate: &'a [bf16],
    norm_weight: &'a [f32],
    norm_eps: f32,
    level: Level,
}

/// A chunk of rows of one key head between the stages; each thread has its own.
struct Chunk<'b> {
    /// q, k and the values of the group, row by row.
    qkv: &'b mut [bf16],
    /// Of the group's heads, row by row.
    decay: &'b mut [f32],
    beta: &'b mut [f32],
    recurrence: Recurrence<'b>,
}

/// What a chunk leaves for buffers that only the stages see.
struct Kept {
    head: usize,
    first: usize,
    qkv: Vec<bf16>,
    decay: Vec<f32>,
    beta: Vec<f32>,
    out: Vec<bf16>,
}

/// `None`: not stages that this kernel knows, or slots out of order.
pub fn run(fused: &Fused, pool: &Pool, memory: &mut Memory<'_>) -> Option<()> {
    let level = pool.level;
    let stages = recognise(fused)?;
    let arena = pool.arena();
    let heads = gated_delta_rule::heads(stages.rule, memory);
    let [channels, width] = memory.dims(stages.conv.weight);
    if !supports(width) || memory.dims(stages.norm.weight) != [heads.dv] {
        return None;
    }
    gated_delta_rule::slots(arena, stages.rule, memory)?;
    causal_conv1d::slots(arena, stages.conv, memory)?;

    let mut conv_state = memory.take(stages.conv.state);
    let mut state = memory.take(stages.rule.state);
    let mut out = memory.take(stages.norm.out);
    let slots = gated_delta_rule::slots(arena, stages.rule, memory).expect("checked above");
    let x = memory.get(stages.conv.x);
    let inputs = Inputs {
        heads,
        rule: stages.rule,
        taps: Taps::new(arena, x, (channels, width), slots, &conv_state),
        conv_weight: memory.get(stages.conv.weight),
        a: memory.get(stages.gates.a),
        b: memory.get(stages.gates.b),
        a_log: memory.get(stages.gates.a_log),
        dt_bias: memory.get(stages.gates.dt_bias),
        gate: memory.get(stages.norm.gate),
        norm_weight: memory.get(stages.norm.weight),
        norm_eps: stages.norm.eps,
        level,
    };
    let work = slots.live() * (heads.work() + channels * (width + 16));
    let cut = jobs(arena, heads, &slots, &mut state, &mut out);
    let kept = Mutex::new(Vec::new());
    let keep = |chunk: &Chunk<'_>, head, rows| {
        if fused.keep_intermediates {
            let chunk = chunk.keep(heads, head, rows);
            kept.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(chunk);
        }
    };
    let room = || Chunk::room(pool, heads, slots.longest());
    pool.each_with(work, cut, room, |job, chunk| inputs.run(job, chunk, keep));
    let mut chunk = Chunk::room(pool, heads, 1);
    for row in slots.inert_rows() {
        inputs.run_inert(row, &mut out, &mut chunk, keep);
    }
    inputs.taps.store(&mut conv_state);
    memory.put(stages.norm.out, out);
    memory.put(stages.rule.state, state);
    memory.put(stages.conv.state, conv_state);
    let kept = kept.into_inner().unwrap_or_else(PoisonError::into_inner);
    store(&stages, heads, &kept, memory);
    Some(())
}

/// q, k and the values of one key head.
fn row_width(heads: Heads) -> usize {
    2 * heads.dk + heads.group() * heads.dv
}

impl<'b> Chunk<'b> {
    /// Room for sequences of up to `rows` rows.
    fn room(pool: &'b Pool, heads: Heads, rows: usize) -> Chunk<'b> {
        let (arena, chunk) = (pool.arena(), rows.min(CHUNK));
        Chunk {
            qkv: zeros(arena, chunk * row_width(heads)),
            decay: zeros(arena, chunk * heads.group()),
            beta: zeros(arena, chunk * heads.group()),
            recurrence: Recurrence::room(pool, heads, rows),
        }
    }

    fn keep(&self, heads: Heads, head: usize, rows: Range<usize>) -> Kept {
        let (count, group) = (rows.len(), heads.group());
        let rows_out = (0..count).map(|i| self.recurrence.out(i));
        Kept {
            head,
            first: rows.start,
            qkv: self.qkv[..count * row_width(heads)].to_vec(),
            decay: self.decay[..count * group].to_vec(),
            beta: self.beta[..count * group].to_vec(),
            out: rows_out.flatten().copied().collect(),
        }
    }
}

impl Inputs<'_> {
    /// One key head of one sequence; `keep` sees every chunk.
    fn run(
        &self,
        job: &mut Job<'_, '_>,
        chunk: &mut Chunk<'_>,
        keep: impl Fn(&Chunk<'_>, usize, Range<usize>),
    ) {
        let total = job.out.rows.len();
        for start in (0..total).step_by(CHUNK) {
            let end = total.min(start + CHUNK);
            let rows = job.out.row + start..job.out.row + end;
            self.convolve(chunk, job.head, rows.clone());
            self.recur(chunk, job, rows.clone(), end == total);
            for (i, out) in job.out.rows[start..end].iter_mut().enumerate() {
                self.normalise(chunk.recurrence.out(i), job.head, rows.start + i, out);
            }
            keep(chunk, job.head, rows);
        }
    }

    /// Stages one and two.
    fn convolve(&self, chunk: &mut Chunk<'_>, head: usize, rows: Range<usize>) {
        let Heads { key, dk, dv, .. } = self.heads;
        let group = self.heads.group();
        let values = 2 * key * dk + head * group * dv;
        let parts = [
            head * dk..(head + 1) * dk,
            (key + head) * dk..(key + head + 1) * dk,
            values..values + group * dv,
        ];
        let width = row_width(self.heads);
        for (i, row) in rows.enumerate() {
            let mut qkv = &mut chunk.qkv[i * width..][..width];
            for channels in parts.clone() {
                let (part, rest) = qkv.split_at_mut(channels.len());
                let weight = self.conv_weight;
                self.taps.convolve(self.level, weight, row, channels, part);
                qkv = rest;
            }
            self.set_gates(chunk, i, head, row);
        }
    }

    fn set_gates(&self, chunk: &mut Chunk<'_>, i: usize, head: usize, row: usize) {
        let group = self.heads.group();
        let first = head * group;
        let at = row * self.heads.value + first;
        gate_rows(
            self.level,
            &self.a[at..][..group],
            &self.b[at..][..group],
            &self.a_log[first..][..group],
            &self.dt_bias[first..][..group],
            &mut chunk.decay[i * group..][..group],
            &mut chunk.beta[i * group..][..group],
        );
    }

    /// Stage three.
    fn recur(&self, chunk: &mut Chunk<'_>, job: &mut Job<'_, '_>, rows: Range<usize>, last: bool) {
        let Heads { dk, dv, .. } = self.heads;
        let (group, width) = (self.heads.group(), row_width(self.heads));
        for i in 0..rows.len() {
            let (q, k) = chunk.qkv[i * width..][..2 * dk].split_at(dk);
            chunk.recurrence.set_keys(i, q, k, self.rule);
        }
        for g in 0..group {
            let values = ValueRows {
                first: rows.start,
                count: rows.len(),
                v: Strided {
                    data: &chunk.qkv[2 * dk + g * dv..],
                    stride: width,
                },
                decay: Strided {
                    data: &chunk.decay[g..],
                    stride: group,
                },
                beta: Strided {
                    data: &chunk.beta[g..],
                    stride: group,
                },
            };
            chunk.recurrence.recur(&mut job.states, g, values, last);
        }
        job.states.next_chunk();
    }

    /// Stage four: the value heads of one key head at one row.
    fn normalise(&self, x: &[bf16], head: usize, row: usize, out: &mut [bf16]) {
        let dv = self.heads.dv;
        let gate = (row * self.heads.key + head) * out.len();
        let gates = self.gate[gate..].chunks_exact(dv);
        let heads = out.chunks_exact_mut(dv).zip(x.chunks_exact(dv));
        for ((out, x), gate) in heads.zip(gates) {
            gated_rms_norm_row(self.level, x, gate, self.norm_weight, self.norm_eps, out);
        }
    }

    /// A row without a sequence: zeros until the norm, which runs on them as on any row.
    fn run_inert(
        &self,
        row: usize,
        out: &mut [bf16],
        chunk: &mut Chunk<'_>,
        keep: impl Fn(&Chunk<'_>, usize, Range<usize>),
    ) {
        let width = self.heads.group() * self.heads.dv;
        let out = &mut out[row * self.heads.key * width..][..self.heads.key * width];
        for (head, out) in out.chunks_exact_mut(width).enumerate() {
            self.set_gates(chunk, 0, head, row);
            self.normalise(chunk.recurrence.out(0), head, row, out);
            keep(chunk, head, row..row + 1);
        }
    }
}

/// Stores what the chunks passed from stage to stage.
fn store(stages: &Stages<'_>, heads: Heads, kept: &[Kept], memory: &mut Memory<'_>) {
    let Heads { key, value, dk, dv } = heads;
    let group = heads.group();
    for chunk in kept {
        let head = chunk.head;
        let rows = chunk.qkv.chunks_exact(row_width(heads));
        for (row, qkv) in (chunk.first..).zip(rows) {
            let out = &mut memory.get_mut(stages.conv.out)[row * heads.channels()..];
            let (q, rest) = qkv.split_at(dk);
            let (k, v) = rest.split_at(dk);
            out[head * dk..][..dk].copy_from_slice(q);
            out[(key + head) * dk..][..dk].copy_from_slice(k);
            out[2 * key * dk + head * group * dv..][..v.len()].copy_from_slice(v);
        }
        for (row, out) in (chunk.first..).zip(chunk.out.chunks_exact(group * dv)) {
            let at = (row * value + head * group) * dv;
            memory.get_mut(stages.rule.out)[at..][..out.len()].copy_from_slice(out);
        }
        let gates = chunk
            .decay
            .chunks_exact(group)
            .zip(chunk.beta.chunks_exact(group));
        for (row, (decay, beta)) in (chunk.first..).zip(gates) {
            let at = row * value + head * group;
            memory.get_mut(stages.gates.decay)[at..][..group].copy_from_slice(decay);
            memory.get_mut(stages.gates.beta)[at..][..group].copy_from_slice(beta);
        }
    }
}
