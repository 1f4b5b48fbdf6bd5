//! The gated delta net from convolution to gated norm: fast because a thread carries one key head of
//! one sequence through all four stages, a chunk of rows at a time, so that nothing between the
//! projections and the normed output is ever stored.

use super::stages::find;
use crate::causal_conv1d::{self, Taps, supports};
use crate::delta_gates::gates;
use crate::gated_delta_rule::{self, CHUNK, Heads, Job, Keys, ValueRows, jobs};
use crate::gated_rms_norm::gated_rms_norm_row;
use crate::level::Level;
use crate::pool::Pool;
use crate::state_slots::inert_rows;
use layerlet_core::launch::Fused;
use layerlet_core::memory::Memory;
use layerlet_core::numerics::bf16;
use layerlet_core::ops::{CausalConv1d, DeltaGates, GatedDeltaRule, GatedRmsNorm};
use std::ops::Range;

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

/// A chunk of rows of one key head between the stages.
#[derive(Clone, Default)]
struct Chunk {
    head: usize,
    rows: Range<usize>,
    /// q, k and the values of the group, row by row.
    qkv: Vec<bf16>,
    /// Decay and beta, row by row.
    gates: Vec<(f32, f32)>,
    /// Output of the rule, row by row.
    out: Vec<bf16>,
}

/// `None`: not stages that this kernel knows, or slots out of order.
pub fn run(fused: &Fused, pool: &Pool, memory: &mut Memory<'_>) -> Option<()> {
    let stages = recognise(fused)?;
    let heads = gated_delta_rule::heads(stages.rule, memory);
    let [channels, width] = memory.dims(stages.conv.weight);
    if !supports(width) || memory.dims(stages.norm.weight) != [heads.dv] {
        return None;
    }
    let slots = gated_delta_rule::slots(stages.rule, memory).ok()?;
    causal_conv1d::slots(stages.conv, memory).ok()?;

    let mut conv_state = memory.take(stages.conv.state);
    let mut state = memory.take(stages.rule.state);
    let mut out = memory.take(stages.norm.out);
    let inputs = Inputs {
        heads,
        rule: stages.rule,
        taps: Taps::new(
            memory.get(stages.conv.x),
            channels,
            width,
            &slots,
            &conv_state,
        ),
        conv_weight: memory.get(stages.conv.weight),
        a: memory.get(stages.gates.a),
        b: memory.get(stages.gates.b),
        a_log: memory.get(stages.gates.a_log),
        dt_bias: memory.get(stages.gates.dt_bias),
        gate: memory.get(stages.norm.gate),
        norm_weight: memory.get(stages.norm.weight),
        norm_eps: stages.norm.eps,
        level: pool.level,
    };
    let live: usize = slots.sequences.iter().map(|s| s.rows.len()).sum();
    let work = live * (heads.work() + channels * (width + 16));
    let cut = jobs(heads, &slots, &mut state, &mut out);
    let keep = fused.keep_intermediates;
    let mut kept = pool.map(work, cut, |job| inputs.run(job, keep)).concat();
    for row in inert_rows(&slots) {
        kept.extend(inputs.run_inert(row, &mut out));
    }
    inputs.taps.store(&mut conv_state);
    memory.put(stages.norm.out, out);
    memory.put(stages.rule.state, state);
    memory.put(stages.conv.state, conv_state);
    if keep {
        store(&stages, heads, &kept, memory);
    }
    Some(())
}

impl Inputs<'_> {
    /// One key head of one sequence; returns its chunks where they are to be kept.
    fn run(&self, mut job: Job<'_>, keep: bool) -> Vec<Chunk> {
        let mut kept = Vec::new();
        let total = job.out.rows.len();
        for start in (0..total).step_by(CHUNK) {
            let end = total.min(start + CHUNK);
            let mut chunk = self.convolve(job.head, job.out.row + start..job.out.row + end);
            self.recur(&mut chunk, &mut job, end == total);
            for (i, out) in job.out.rows[start..end].iter_mut().enumerate() {
                self.normalise(&chunk, i, out);
            }
            if keep {
                kept.push(chunk);
            }
        }
        kept
    }

    /// Stages one and two.
    fn convolve(&self, head: usize, rows: Range<usize>) -> Chunk {
        let Heads { key, dk, dv, .. } = self.heads;
        let group = self.heads.group();
        let values = 2 * key * dk + head * group * dv;
        let parts = [
            head * dk..(head + 1) * dk,
            (key + head) * dk..(key + head + 1) * dk,
            values..values + group * dv,
        ];
        let width = self.row_width();
        let mut chunk = Chunk {
            head,
            qkv: vec![bf16::ZERO; rows.len() * width],
            out: vec![bf16::ZERO; rows.len() * group * dv],
            ..Chunk::default()
        };
        for (row, mut qkv) in rows.clone().zip(chunk.qkv.chunks_exact_mut(width)) {
            for channels in parts.clone() {
                let (part, rest) = qkv.split_at_mut(channels.len());
                self.taps
                    .convolve(self.level, self.conv_weight, row, channels, part);
                qkv = rest;
            }
            let heads = head * group..(head + 1) * group;
            chunk.gates.extend(heads.map(|h| self.gates(row, h)));
        }
        chunk.rows = rows;
        chunk
    }

    /// q, k and the values of one key head.
    fn row_width(&self) -> usize {
        2 * self.heads.dk + self.heads.group() * self.heads.dv
    }

    fn gates(&self, row: usize, head: usize) -> (f32, f32) {
        let at = row * self.heads.value + head;
        gates(self.a[at], self.b[at], self.a_log[head], self.dt_bias[head])
    }

    /// Stage three.
    fn recur(&self, chunk: &mut Chunk, job: &mut Job<'_>, last: bool) {
        let Heads { dk, dv, .. } = self.heads;
        let group = self.heads.group();
        let rows: Vec<&[bf16]> = chunk.qkv.chunks_exact(self.row_width()).collect();
        let mut keys = Keys::default();
        for row in &rows {
            keys.push(
                self.level,
                &row[..dk],
                &row[dk..2 * dk],
                self.rule.l2_eps,
                self.rule.scale,
            );
        }
        for g in 0..group {
            let values = ValueRows {
                row: chunk.rows.start,
                v: rows
                    .iter()
                    .map(|row| &row[2 * dk + g * dv..][..dv])
                    .collect(),
                gates: chunk.gates.iter().skip(g).step_by(group).copied().collect(),
            };
            let out = chunk.out.chunks_exact_mut(group * dv);
            let mut out: Vec<&mut [bf16]> = out.map(|row| &mut row[g * dv..][..dv]).collect();
            job.states
                .recur(self.level, self.heads, g, &keys, &values, last, &mut out);
        }
        job.states.next_chunk();
    }

    /// Stage four, of the chunk's row `i`.
    fn normalise(&self, chunk: &Chunk, i: usize, out: &mut [bf16]) {
        let dv = self.heads.dv;
        let width = self.heads.group() * dv;
        let gate = ((chunk.rows.start + i) * self.heads.key + chunk.head) * width;
        let heads = chunk.out[i * width..][..width].chunks_exact(dv);
        let gates = self.gate[gate..][..width].chunks_exact(dv);
        for ((out, x), gate) in out.chunks_exact_mut(dv).zip(heads).zip(gates) {
            gated_rms_norm_row(self.level, x, gate, self.norm_weight, self.norm_eps, out);
        }
    }

    /// A row without a sequence: zeros until the norm, which runs on them as on any row.
    fn run_inert(&self, row: usize, out: &mut [bf16]) -> Vec<Chunk> {
        let group = self.heads.group();
        let width = group * self.heads.dv;
        let out = &mut out[row * self.heads.key * width..][..self.heads.key * width];
        let heads = out.chunks_exact_mut(width).enumerate();
        heads
            .map(|(head, out)| {
                let values = head * group..(head + 1) * group;
                let chunk = Chunk {
                    head,
                    rows: row..row + 1,
                    qkv: vec![bf16::ZERO; self.row_width()],
                    gates: values.map(|h| self.gates(row, h)).collect(),
                    out: vec![bf16::ZERO; width],
                };
                self.normalise(&chunk, 0, out);
                chunk
            })
            .collect()
    }
}

/// Stores what the chunks passed from stage to stage.
fn store(stages: &Stages<'_>, heads: Heads, kept: &[Chunk], memory: &mut Memory<'_>) {
    let Heads { key, value, dk, dv } = heads;
    let group = heads.group();
    let mut put = |buffer, columns: usize, row: usize, column: usize, part: &[bf16]| {
        memory.get_mut(buffer)[row * columns + column..][..part.len()].copy_from_slice(part);
    };
    for chunk in kept {
        let rows = chunk.rows.clone();
        for (row, qkv) in rows.clone().zip(chunk.qkv.chunks(2 * dk + group * dv)) {
            let (q, rest) = qkv.split_at(dk);
            let (k, v) = rest.split_at(dk);
            put(stages.conv.out, heads.channels(), row, chunk.head * dk, q);
            put(
                stages.conv.out,
                heads.channels(),
                row,
                (key + chunk.head) * dk,
                k,
            );
            let column = 2 * key * dk + chunk.head * group * dv;
            put(stages.conv.out, heads.channels(), row, column, v);
        }
        for (row, out) in rows.zip(chunk.out.chunks(group * dv)) {
            put(
                stages.rule.out,
                value * dv,
                row,
                chunk.head * group * dv,
                out,
            );
        }
    }
    for chunk in kept {
        for (row, gates) in chunk.rows.clone().zip(chunk.gates.chunks(group)) {
            for (g, &(decay, beta)) in gates.iter().enumerate() {
                let at = row * value + chunk.head * group + g;
                memory.get_mut(stages.gates.decay)[at] = decay;
                memory.get_mut(stages.gates.beta)[at] = beta;
            }
        }
    }
}
