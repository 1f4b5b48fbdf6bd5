//! Fast because channels lie beside each other: with the number of taps known to the compiler, taps
//! and SiLU of many channels are one straight line of vector code.

use crate::arena::{Bump, zeros};
use crate::level::{Level, per_level};
use crate::linear::linear_tiles;
use crate::pool::Pool;
use crate::state_slots::Slots;
use crate::vector::widen;
use layerlet_core::NONE;
use layerlet_core::launch::{LaunchError, Operation};
use layerlet_core::memory::Memory;
use layerlet_core::numerics::{bf16, round_bf16, silu};
use layerlet_core::ops::CausalConv1d;
use std::ops::Range;

/// The inputs of a step with what came before them.
pub struct Taps<'a> {
    x: &'a [bf16],
    channels: usize,
    width: usize,
    slots: Slots<'a>,
    /// Sequence of each row.
    sequence: &'a [Option<usize>],
    /// The `width - 1` inputs before the first row of each sequence.
    history: &'a [bf16],
}

impl<'a> Taps<'a> {
    /// Copies the histories, because the slots that hold them may be written in this step.
    pub fn new(
        arena: &'a Bump,
        x: &'a [bf16],
        (channels, width): (usize, usize),
        slots: Slots<'a>,
        state: &[bf16],
    ) -> Self {
        let slot_len = (width - 1) * channels;
        let history = zeros(arena, slots.sequences.len() * slot_len);
        let sequence = arena.alloc_slice_fill_copy(slots.writes.len(), None);
        for (s, own) in slots.sequences.iter().enumerate() {
            if let Some(slot) = own.read {
                let history = &mut history[s * slot_len..][..slot_len];
                history.copy_from_slice(&state[slot * slot_len..][..slot_len]);
            }
            sequence[own.rows.clone()].fill(Some(s));
        }
        Taps {
            x,
            channels,
            width,
            slots,
            sequence,
            history,
        }
    }

    /// Whether the row belongs to a sequence.
    fn is_live(&self, row: usize) -> bool {
        self.sequence[row].is_some()
    }

    /// The input `back` rows before a live row.
    fn back(&self, row: usize, back: usize) -> &[bf16] {
        let sequence = self.sequence[row].expect("a live row");
        let since_start = row - self.slots.sequences[sequence].rows.start;
        let (rows, index) = match back.checked_sub(since_start + 1) {
            None => (self.x, row - back),
            Some(before) => {
                let last = (sequence + 1) * (self.width - 1) - 1;
                (self.history, last - before)
            }
        };
        &rows[index * self.channels..][..self.channels]
    }

    /// Convolution and SiLU of some channels of a live row.
    pub fn convolve(
        &self,
        level: Level,
        weight: &[f32],
        row: usize,
        channels: Range<usize>,
        out: &mut [bf16],
    ) {
        match self.width {
            2 => self.convolve_taps::<2>(level, weight, row, channels, out),
            3 => self.convolve_taps::<3>(level, weight, row, channels, out),
            4 => self.convolve_taps::<4>(level, weight, row, channels, out),
            5 => self.convolve_taps::<5>(level, weight, row, channels, out),
            6 => self.convolve_taps::<6>(level, weight, row, channels, out),
            7 => self.convolve_taps::<7>(level, weight, row, channels, out),
            8 => self.convolve_taps::<8>(level, weight, row, channels, out),
            _ => unreachable!("checked by `supports`"),
        }
    }

    fn convolve_taps<const W: usize>(
        &self,
        level: Level,
        weight: &[f32],
        row: usize,
        channels: Range<usize>,
        out: &mut [bf16],
    ) {
        let taps = std::array::from_fn(|j| &self.back(row, W - 1 - j)[channels.clone()]);
        let (weight, _) = weight[channels.start * W..channels.end * W].as_chunks::<W>();
        convolve_row(level, weight, taps, out);
    }

    /// Leaves behind the state after every row that wants it.
    pub fn store(&self, state: &mut [bf16]) {
        let kept = self.width - 1;
        let writes = self.slots.writes.iter().enumerate();
        for (row, &slot) in writes.filter(|(_, slot)| **slot != NONE) {
            let slot = &mut state[slot as usize * kept * self.channels..];
            for (i, out) in slot.chunks_exact_mut(self.channels).take(kept).enumerate() {
                out.copy_from_slice(self.back(row, kept - 1 - i));
            }
        }
    }
}

per_level! {
    fn convolve_row[const W: usize][W](weight: &[[f32; W]], taps: [&[bf16]; W], out: &mut [bf16]) {
        let n = out.len();
        let (weight, taps) = (&weight[..n], taps.map(|tap| &tap[..n]));
        for c in 0..n {
            let mut sum = 0.0;
            for j in 0..W {
                sum += weight[c][j] * widen(taps[j][c]);
            }
            out[c] = round_bf16(silu(sum));
        }
    }
}

/// Numbers of taps that [`Taps`] has code for.
pub fn supports(width: usize) -> bool {
    (2..=8).contains(&width)
}

/// The slots of a launch; `None` where the definition refuses them.
pub fn slots<'a>(arena: &'a Bump, op: &CausalConv1d, memory: &'a Memory<'_>) -> Option<Slots<'a>> {
    let [slots, ..] = memory.dims::<_, 3>(op.state);
    Slots::new(
        arena,
        memory.get(op.seq_rows),
        memory.get(op.state_read),
        memory.get(op.state_write),
        slots,
    )
}

/// The operation.
pub fn run(op: &CausalConv1d, pool: &Pool, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
    let level = pool.level;
    let [channels, width] = memory.dims(op.weight);
    let arena = pool.arena();
    if !supports(width) || slots(arena, op, memory).is_none() {
        return op.run(memory);
    }
    let (mut state, mut out) = (memory.take(op.state), memory.take(op.out));
    let slots = slots(arena, op, memory).expect("checked above");
    let (x, weight) = (memory.get(op.x), memory.get(op.weight));
    let taps = Taps::new(arena, x, (channels, width), slots, &state);
    let work = out.len() * (width + 16);
    pool.each(work, linear_tiles(pool, work, &mut out, channels), |tile| {
        for (i, out) in tile.rows.iter_mut().enumerate() {
            let channels = tile.column..tile.column + out.len();
            match taps.is_live(tile.row + i) {
                true => taps.convolve(level, weight, tile.row + i, channels, out),
                false => out.fill(bf16::ZERO),
            }
        }
    });
    taps.store(&mut state);
    memory.put(op.state, state);
    memory.put(op.out, out);
    Ok(())
}
