//! Fast because columns of the state are independent: 16 of them at a time stay in the nearest
//! cache for all rows of a sequence, in vector registers side by side, so that the state crosses
//! memory once a launch, however many tokens there are.

use crate::arena::{Bump, list, zeros};
use crate::level::{Level, per_level};
use crate::pool::Pool;
use crate::state_slots::{SlotParts, Slots, Start, deal_slots};
use crate::tiles::{Tile, tiles};
use crate::vector::{COLUMNS, Terms, column_sum, sum_of_squares, widen, widen_row};
use layerlet_core::launch::{LaunchError, Operation};
use layerlet_core::memory::Memory;
use layerlet_core::numerics::{bf16, round_bf16, rsqrt};
use layerlet_core::ops::GatedDeltaRule;
use std::mem::take;
use std::ops::Range;

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

/// Rows of a matrix that lie `stride` elements apart, from some column on.
#[derive(Clone, Copy)]
pub struct Strided<'a, T> {
    pub data: &'a [T],
    pub stride: usize,
}

impl<'a, T> Strided<'a, T> {
    fn row(self, row: usize) -> &'a [T] {
        &self.data[row * self.stride..]
    }
}

/// A chunk of rows of one value head.
#[derive(Clone, Copy)]
pub struct ValueRows<'a> {
    /// First row of the chunk, as rows of the step.
    pub first: usize,
    /// How many there are.
    pub count: usize,
    pub v: Strided<'a, bf16>,
    pub decay: Strided<'a, f32>,
    pub beta: Strided<'a, f32>,
}

/// What a thread needs for the value heads of one key head, a chunk of rows at a time.
pub struct Recurrence<'b> {
    level: Level,
    heads: Heads,
    /// Normalised q and k of the chunk.
    q: &'b mut [f32],
    k: &'b mut [f32],
    /// Some columns of a state.
    tile: &'b mut [[f32; COLUMNS]],
    /// State between chunks.
    carry: &'b mut [f32],
    /// Output of the chunk, `[CHUNK, group, dv]`.
    out: &'b mut [bf16],
}

impl<'b> Recurrence<'b> {
    /// Room for sequences of up to `rows` rows.
    pub fn room(pool: &'b Pool, heads: Heads, rows: usize) -> Recurrence<'b> {
        let (arena, group) = (pool.arena(), heads.group());
        let (chunk, chunks) = (rows.min(CHUNK), rows.div_ceil(CHUNK));
        let carried = if chunks > 1 { group } else { 0 };
        Recurrence {
            level: pool.level,
            heads,
            q: zeros(arena, chunk * heads.dk),
            k: zeros(arena, chunk * heads.dk),
            tile: arena.alloc_slice_fill_copy(heads.dk, [0.0; COLUMNS]),
            carry: zeros(arena, carried * heads.dk * heads.dv),
            out: zeros(arena, chunk * group * heads.dv),
        }
    }

    /// Sets q and k of row `i` of the chunk.
    pub fn set_keys(&mut self, i: usize, q: &[bf16], k: &[bf16], op: &GatedDeltaRule) {
        let at = i * self.heads.dk..(i + 1) * self.heads.dk;
        normalise(self.level, q, op.l2_eps, &mut self.q[at.clone()]);
        self.q[at.clone()].iter_mut().for_each(|q| *q *= op.scale);
        normalise(self.level, k, op.l2_eps, &mut self.k[at]);
    }

    /// Runs a chunk through value head `head` of the group; `last` tells that no chunk follows.
    pub fn recur(
        &mut self,
        states: &mut HeadStates<'_, '_>,
        head: usize,
        rows: ValueRows<'_>,
        last: bool,
    ) {
        let Heads { dk, dv, .. } = self.heads;
        let (size, width) = (dk * dv, self.heads.group() * dv);
        let part = head * size..(head + 1) * size;
        for column in (0..dv).step_by(COLUMNS) {
            let columns = COLUMNS.min(dv - column);
            match states.before(self.carry) {
                Some(state) => load(&state[part.clone()], dv, column, columns, self.tile),
                None => self.tile.fill([0.0; COLUMNS]),
            }
            for i in 0..rows.count {
                let mut v = [0.0; COLUMNS];
                for (v, &x) in v.iter_mut().zip(&rows.v.row(i)[column..][..columns]) {
                    *v = widen(x);
                }
                let at = i * dk..(i + 1) * dk;
                let gates = (rows.decay.row(i)[0], rows.beta.row(i)[0]);
                let (q, k) = (&self.q[at.clone()], &self.k[at]);
                let o = step(self.level, self.tile, q, k, v, gates);
                let out = &mut self.out[i * width + head * dv + column..][..columns];
                for (out, o) in out.iter_mut().zip(o) {
                    *out = round_bf16(o);
                }
                let mut writes = states.parts.writes.iter_mut();
                if let Some((_, slot)) = writes.find(|w| w.0 == rows.first + i) {
                    store(self.tile, dv, column, columns, &mut slot[part.clone()]);
                }
            }
            if !last {
                store(
                    self.tile,
                    dv,
                    column,
                    columns,
                    &mut self.carry[part.clone()],
                );
            }
        }
    }

    /// Output of row `i` of the chunk, all value heads of the group.
    pub fn out(&self, i: usize) -> &[bf16] {
        let width = self.heads.group() * self.heads.dv;
        &self.out[i * width..][..width]
    }
}

per_level! {
    /// A row, widened and divided by its norm.
    fn normalise(x: &[bf16], l2_eps: f32, out: &mut [f32]) {
        widen_row(x, out);
        let factor = rsqrt(sum_of_squares(out) + l2_eps);
        out.iter_mut().for_each(|x| *x *= factor);
    }
}

/// The state of one key head's value heads as it passes through the chunks of a sequence.
pub struct HeadStates<'a, 'b> {
    parts: SlotParts<'a, 'b, f32>,
    started: bool,
}

impl<'a, 'b> HeadStates<'a, 'b> {
    /// Before the first row.
    pub fn new(parts: SlotParts<'a, 'b, f32>) -> Self {
        HeadStates {
            parts,
            started: false,
        }
    }

    /// Marks the end of a chunk: the state now lies in the carry of the thread.
    pub fn next_chunk(&mut self) {
        self.started = true;
    }

    /// The states before the chunk; `None` is zeros.
    fn before<'s>(&'s self, carry: &'s [f32]) -> Option<&'s [f32]> {
        match (self.started, &self.parts.start) {
            (true, _) => Some(carry),
            (false, Start::Zeros) => None,
            (false, Start::Slot(slot)) => Some(slot),
            (false, Start::Written(i)) => Some(&*self.parts.writes[*i].1),
        }
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

/// Decays the state and reads it with k.
struct Read<'a> {
    state: &'a mut [[f32; COLUMNS]],
    k: &'a [f32],
    decay: f32,
}

impl Terms for Read<'_> {
    #[inline(always)]
    fn row(&mut self, i: usize) -> [f32; COLUMNS] {
        let (state, k) = (&mut self.state[i], self.k[i]);
        let mut term = [0.0; COLUMNS];
        for (s, term) in state.iter_mut().zip(&mut term) {
            *s *= self.decay;
            *term = *s * k;
        }
        term
    }
}

/// Writes the state and reads it with q.
struct Write<'a> {
    state: &'a mut [[f32; COLUMNS]],
    q: &'a [f32],
    k: &'a [f32],
    delta: [f32; COLUMNS],
}

impl Terms for Write<'_> {
    #[inline(always)]
    fn row(&mut self, i: usize) -> [f32; COLUMNS] {
        let (state, q, k) = (&mut self.state[i], self.q[i], self.k[i]);
        let mut term = [0.0; COLUMNS];
        for ((s, term), delta) in state.iter_mut().zip(&mut term).zip(self.delta) {
            *s += k * delta;
            *term = *s * q;
        }
        term
    }
}

per_level! {
    /// One token through 16 columns of the state: decay, read, write, output.
    fn step(
        state: &mut [[f32; COLUMNS]], q: &[f32], k: &[f32], v: [f32; COLUMNS], gates: (f32, f32),
    ) -> [f32; COLUMNS] {
        let (decay, beta) = gates;
        let n = state.len();
        let (q, k) = (&q[..n], &k[..n]);
        let read = column_sum(n, &mut Read { state, k, decay });
        let mut delta = [0.0; COLUMNS];
        for c in 0..COLUMNS {
            delta[c] = (v[c] - read[c]) * beta;
        }
        column_sum(n, &mut Write { state, q, k, delta })
    }
}

/// One sequence and one key head: what a thread works on.
pub struct Job<'a, 'b> {
    /// The key head.
    pub head: usize,
    /// The rows of the sequence in the output columns of the key head's value heads.
    pub out: Tile<'a, 'b, bf16>,
    /// The state of those heads.
    pub states: HeadStates<'a, 'b>,
}

/// Cuts output and state by sequence and key head; rows without a sequence become zero.
pub fn jobs<'a, 'b>(
    arena: &'b Bump,
    heads: Heads,
    slots: &Slots<'_>,
    state: &'a mut [f32],
    out: &'a mut [bf16],
) -> &'b mut [Job<'a, 'b>]
where
    'a: 'b,
{
    let size = heads.dk * heads.dv;
    let parts = deal_slots(arena, state, heads.value * size, heads.key, slots);
    let mut parts = parts.iter_mut();
    let width = heads.value * heads.dv;
    let (mut next, mut rest) = (0, out);
    let mut cut = |rows: Range<usize>| {
        let (gap, others) = take(&mut rest).split_at_mut((rows.start - next) * width);
        let (own, others) = others.split_at_mut(rows.len() * width);
        (next, rest) = (rows.end, others);
        gap.fill(bf16::ZERO);
        own
    };
    let jobs = slots.sequences.iter().flat_map(|sequence| {
        let (start, rows) = (sequence.rows.start, sequence.rows.len());
        let own = cut(sequence.rows.clone());
        let tiles = tiles(arena, own, width, rows.max(1), heads.group() * heads.dv);
        let parts: &'b mut [_] = list(arena, parts.by_ref().take(heads.key));
        tiles
            .zip(parts.iter_mut())
            .enumerate()
            .map(move |(head, (mut out, parts))| {
                out.row = start;
                Job {
                    head,
                    out,
                    states: HeadStates::new(take(*parts)),
                }
            })
    });
    let jobs = list(arena, jobs);
    rest.fill(bf16::ZERO);
    jobs
}

/// The slots of a launch over a state `[slots, Hv, Dk, Dv]`; `None` where the definition refuses them.
pub fn slots<'a>(
    arena: &'a Bump,
    op: &GatedDeltaRule,
    memory: &'a Memory<'_>,
) -> Option<Slots<'a>> {
    let [slots, ..] = memory.dims::<_, 4>(op.state);
    Slots::new(
        arena,
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
    let arena = pool.arena();
    if slots(arena, op, memory).is_none() {
        return op.run(memory);
    }
    let heads = heads(op, memory);
    let (mut state, mut out) = (memory.take(op.state), memory.take(op.out));
    let slots = slots(arena, op, memory).expect("checked above");
    let (qkv, decay, beta) = (
        memory.get(op.qkv),
        memory.get(op.decay),
        memory.get(op.beta),
    );
    let cut = jobs(arena, heads, &slots, &mut state, &mut out);
    let room = || Recurrence::room(pool, heads, slots.longest());
    pool.each_with(slots.live() * heads.work(), cut, room, |job, own| {
        run_job(op, heads, qkv, decay, beta, job, own);
    });
    memory.put(op.state, state);
    memory.put(op.out, out);
    Ok(())
}

fn run_job(
    op: &GatedDeltaRule,
    heads: Heads,
    qkv: &[bf16],
    decay: &[f32],
    beta: &[f32],
    job: &mut Job<'_, '_>,
    own: &mut Recurrence<'_>,
) {
    let (Heads { key, value, dk, dv }, group) = (heads, heads.group());
    let channels = heads.channels();
    let total = job.out.rows.len();
    for start in (0..total).step_by(CHUNK) {
        let (first, count) = (job.out.row + start, CHUNK.min(total - start));
        for i in 0..count {
            let qkv = &qkv[(first + i) * channels..][..channels];
            let (q, k) = (
                &qkv[job.head * dk..][..dk],
                &qkv[(key + job.head) * dk..][..dk],
            );
            own.set_keys(i, q, k, op);
        }
        for g in 0..group {
            let head = job.head * group + g;
            let rows = ValueRows {
                first,
                count,
                v: Strided {
                    data: &qkv[first * channels + 2 * key * dk + head * dv..],
                    stride: channels,
                },
                decay: Strided {
                    data: &decay[first * value + head..],
                    stride: value,
                },
                beta: Strided {
                    data: &beta[first * value + head..],
                    stride: value,
                },
            };
            own.recur(&mut job.states, g, rows, start + count == total);
        }
        for (i, out) in job.out.rows[start..start + count].iter_mut().enumerate() {
            out.copy_from_slice(own.out(i));
        }
        job.states.next_chunk();
    }
}
