//! Fast because columns of the state are independent: 16 of them at a time stay in the nearest
//! cache for all rows of a sequence, in vector registers side by side, so that the state crosses
//! memory once a launch, however many tokens there are.

use crate::level::{Level, per_level};
use crate::pool::Pool;
use crate::state_slots::{SlotParts, Start, deal_slots};
use crate::tiles::{Tile, tiles};
use crate::vector::{COLUMNS, column_sum, push_widened, sum_of_squares, widen};
use layerlet_core::launch::{LaunchError, Operation};
use layerlet_core::memory::Memory;
use layerlet_core::numerics::{bf16, round_bf16, rsqrt};
use layerlet_core::ops::{GatedDeltaRule, StateSlots};

/// Rows whose q and k are normalised ahead of the recurrence.
pub const CHUNK: usize = 32;

/// Heads and their sizes.
#[derive(Clone, Copy)]
pub struct Heads {
    /// Key heads.
    pub key: usize,
    /// Value heads.
    pub value: usize,
    /// Width of a key head.
    pub dk: usize,
    /// Width of a value head.
    pub dv: usize,
}

impl Heads {
    /// Value heads of one key head.
    pub fn group(&self) -> usize {
        self.value / self.key
    }

    /// Channels of q, k and v together.
    pub fn channels(&self) -> usize {
        2 * self.key * self.dk + self.value * self.dv
    }

    /// Multiply-adds of one row, about.
    pub fn work(&self) -> usize {
        4 * self.value * self.dk * self.dv
    }
}

/// q and k of a chunk of rows of one key head, normalised.
#[derive(Default)]
pub struct Keys {
    q: Vec<f32>,
    k: Vec<f32>,
}

impl Keys {
    /// Forgets the rows of the chunk before.
    pub fn clear(&mut self) {
        self.q.clear();
        self.k.clear();
    }

    /// Adds a row.
    pub fn push(&mut self, level: Level, q: &[bf16], k: &[bf16], l2_eps: f32, scale: f32) {
        let start = self.q.len();
        push_normalised(level, &mut self.q, q, l2_eps);
        self.q[start..].iter_mut().for_each(|q| *q *= scale);
        push_normalised(level, &mut self.k, k, l2_eps);
    }
}

per_level! {
    /// Appends a row, widened and divided by its norm.
    fn push_normalised(rows: &mut Vec<f32>, x: &[bf16], l2_eps: f32) {
        let start = rows.len();
        push_widened(x, rows);
        let row = &mut rows[start..];
        let factor = rsqrt(sum_of_squares(row) + l2_eps);
        row.iter_mut().for_each(|x| *x *= factor);
    }
}

/// One chunk of rows of one value head.
pub struct ValueRows<'a> {
    /// First row of the chunk, as rows of the step.
    pub row: usize,
    /// v of each row.
    pub v: Vec<&'a [bf16]>,
    /// Decay and beta of each row.
    pub gates: Vec<(f32, f32)>,
}

/// The state of one key head's value heads as it passes through the chunks of a sequence.
pub struct HeadStates<'a> {
    parts: SlotParts<'a, f32>,
    /// State after the last chunk; empty before the first and after the only one.
    carry: Vec<f32>,
    started: bool,
}

impl<'a> HeadStates<'a> {
    /// Before the first row.
    pub fn new(parts: SlotParts<'a, f32>) -> Self {
        HeadStates {
            parts,
            carry: Vec::new(),
            started: false,
        }
    }

    /// Marks the end of a chunk: the state now lies in the carry.
    pub fn next_chunk(&mut self) {
        self.started = true;
    }

    /// Runs a chunk through value head `head` of the group; `last` tells that no chunk follows.
    pub fn recur(
        &mut self,
        level: Level,
        heads: Heads,
        head: usize,
        keys: &Keys,
        rows: &ValueRows<'_>,
        last: bool,
        out: &mut [&mut [bf16]],
    ) {
        let size = heads.dk * heads.dv;
        if !last && self.carry.is_empty() {
            self.carry = vec![0.0; heads.group() * size];
        }
        let mut tile = vec![[0.0f32; COLUMNS]; heads.dk];
        for column in (0..heads.dv).step_by(COLUMNS) {
            let width = COLUMNS.min(heads.dv - column);
            match self.before(head * size, size) {
                Some(state) => load(state, heads.dv, column, width, &mut tile),
                None => tile.fill([0.0; COLUMNS]),
            }
            for (i, out) in out.iter_mut().enumerate() {
                let mut v = [0.0; COLUMNS];
                for (v, &x) in v.iter_mut().zip(&rows.v[i][column..]) {
                    *v = widen(x);
                }
                let at = i * heads.dk..(i + 1) * heads.dk;
                let o = step(
                    level,
                    &mut tile,
                    &keys.q[at.clone()],
                    &keys.k[at],
                    v,
                    rows.gates[i],
                );
                for (out, o) in out[column..][..width].iter_mut().zip(o) {
                    *out = round_bf16(o);
                }
                let mut writes = self.parts.writes.iter_mut();
                if let Some((_, slot)) = writes.find(|w| w.0 == rows.row + i) {
                    store(
                        &tile,
                        heads.dv,
                        column,
                        width,
                        &mut slot[head * size..][..size],
                    );
                }
            }
            if !last {
                let carry = &mut self.carry[head * size..][..size];
                store(&tile, heads.dv, column, width, carry);
            }
        }
    }

    /// The state before the chunk; `None` is zeros.
    fn before(&self, at: usize, size: usize) -> Option<&[f32]> {
        let state = match (self.started, &self.parts.start) {
            (true, _) => &self.carry,
            (false, Start::Zeros) => return None,
            (false, Start::Slot(slot)) => *slot,
            (false, Start::Written(i)) => &*self.parts.writes[*i].1,
        };
        Some(&state[at..][..size])
    }
}

fn load(state: &[f32], dv: usize, column: usize, width: usize, tile: &mut [[f32; COLUMNS]]) {
    for (tile, row) in tile.iter_mut().zip(state.chunks_exact(dv)) {
        tile[..width].copy_from_slice(&row[column..][..width]);
    }
}

fn store(tile: &[[f32; COLUMNS]], dv: usize, column: usize, width: usize, state: &mut [f32]) {
    for (tile, row) in tile.iter().zip(state.chunks_exact_mut(dv)) {
        row[column..][..width].copy_from_slice(&tile[..width]);
    }
}

per_level! {
    /// One token through 16 columns of the state: decay, read, write, output.
    fn step(
        state: &mut [[f32; COLUMNS]],
        q: &[f32],
        k: &[f32],
        v: [f32; COLUMNS],
        gates: (f32, f32),
    ) -> [f32; COLUMNS] {
        let (decay, beta) = gates;
        let n = state.len();
        let (q, k) = (&q[..n], &k[..n]);
        let read = column_sum(n, |i| {
            let mut term = [0.0; COLUMNS];
            for (s, term) in state[i].iter_mut().zip(&mut term) {
                *s *= decay;
                *term = *s * k[i];
            }
            term
        });
        let mut delta = [0.0; COLUMNS];
        for c in 0..COLUMNS {
            delta[c] = (v[c] - read[c]) * beta;
        }
        column_sum(n, |i| {
            let mut term = [0.0; COLUMNS];
            for ((s, term), delta) in state[i].iter_mut().zip(&mut term).zip(delta) {
                *s += k[i] * delta;
                *term = *s * q[i];
            }
            term
        })
    }
}

/// One sequence and one key head: what a thread works on.
pub struct Job<'a> {
    /// The key head.
    pub head: usize,
    /// The rows of the sequence in the output columns of the key head's value heads.
    pub out: Tile<'a, bf16>,
    /// The state of those heads.
    pub states: HeadStates<'a>,
}

/// Cuts output and state by sequence and key head; rows without a sequence become zero.
pub fn jobs<'a>(
    heads: Heads,
    slots: &StateSlots,
    state: &'a mut [f32],
    mut out: &'a mut [bf16],
) -> Vec<Job<'a>> {
    let size = heads.dk * heads.dv;
    let mut parts = deal_slots(state, heads.value * size, heads.key, slots).into_iter();
    let width = heads.value * heads.dv;
    let mut next = 0;
    let mut jobs = Vec::new();
    for rows in slots.sequences.iter().map(|s| s.rows.clone()) {
        let (gap, rest) = out.split_at_mut((rows.start - next) * width);
        let (own, rest) = rest.split_at_mut(rows.len() * width);
        (next, out) = (rows.end, rest);
        gap.fill(bf16::ZERO);
        let own_parts: Vec<_> = parts.by_ref().take(heads.key).collect();
        let cut = tiles(own, width, rows.len(), heads.group() * heads.dv);
        for (head, (mut out, parts)) in cut.into_iter().zip(own_parts).enumerate() {
            out.row = rows.start;
            jobs.push(Job {
                head,
                out,
                states: HeadStates::new(parts),
            });
        }
    }
    out.fill(bf16::ZERO);
    jobs
}

/// The checked slots of a launch over a state `[slots, Hv, Dk, Dv]`.
pub fn slots(op: &GatedDeltaRule, memory: &Memory<'_>) -> Result<StateSlots, LaunchError> {
    let [slots, ..] = memory.dims::<_, 4>(op.state);
    StateSlots::new(
        GatedDeltaRule::NAME,
        memory.get(op.seq_rows),
        memory.get(op.state_read),
        memory.get(op.state_write),
        slots,
    )
}

/// The heads of a launch.
pub fn heads(op: &GatedDeltaRule, memory: &Memory<'_>) -> Heads {
    let [_, value, dk, dv] = memory.dims(op.state);
    Heads {
        key: op.key_heads,
        value,
        dk,
        dv,
    }
}

/// The operation.
pub fn run(op: &GatedDeltaRule, pool: &Pool, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
    let (heads, slots) = (heads(op, memory), slots(op, memory)?);
    let (mut state, mut out) = (memory.take(op.state), memory.take(op.out));
    let (qkv, decay, beta) = (
        memory.get(op.qkv),
        memory.get(op.decay),
        memory.get(op.beta),
    );
    let live: usize = slots.sequences.iter().map(|s| s.rows.len()).sum();
    let cut = jobs(heads, &slots, &mut state, &mut out);
    pool.each(live * heads.work(), cut, |job| {
        run_job(pool.level, op, heads, qkv, decay, beta, job);
    });
    memory.put(op.state, state);
    memory.put(op.out, out);
    Ok(())
}

fn run_job(
    level: Level,
    op: &GatedDeltaRule,
    heads: Heads,
    qkv: &[bf16],
    decay: &[f32],
    beta: &[f32],
    mut job: Job<'_>,
) {
    let (dk, dv, group) = (heads.dk, heads.dv, heads.group());
    let row_of = |row: usize| &qkv[row * heads.channels()..][..heads.channels()];
    let mut keys = Keys::default();
    let total = job.out.rows.len();
    for start in (0..total).step_by(CHUNK) {
        let end = total.min(start + CHUNK);
        let first = job.out.row + start;
        keys.clear();
        for row in first..first + (end - start) {
            let qkv = row_of(row);
            let k = &qkv[(heads.key + job.head) * dk..][..dk];
            let q = &qkv[job.head * dk..][..dk];
            keys.push(level, q, k, op.l2_eps, op.scale);
        }
        for g in 0..group {
            let head = job.head * group + g;
            let rows = first..first + (end - start);
            let values = ValueRows {
                row: first,
                v: rows
                    .clone()
                    .map(|row| &row_of(row)[2 * heads.key * dk + head * dv..][..dv])
                    .collect(),
                gates: rows
                    .map(|row| {
                        (
                            decay[row * heads.value + head],
                            beta[row * heads.value + head],
                        )
                    })
                    .collect(),
            };
            let mut out: Vec<&mut [bf16]> = job.out.rows[start..end]
                .iter_mut()
                .map(|row| &mut row[g * dv..][..dv])
                .collect();
            job.states
                .recur(level, heads, g, &keys, &values, end == total, &mut out);
        }
        job.states.next_chunk();
    }
}
