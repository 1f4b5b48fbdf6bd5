//! Random content: mostly what models hold, now and then what breaks kernels.

use layerlet_core::NONE;
use layerlet_core::numerics::{bf16, philox};

/// A counter-based source, so that a case is named by its seed.
pub struct Random {
    seed: u32,
    counter: u32,
    /// Extremes, NaN and infinities among floats.
    pub wild: bool,
    /// Floats that are 1 or far below its last place, of either sign: what a sum of them keeps shows
    /// the order in which it was taken, where rounding to bf16 would hide it.
    pub absorbing: bool,
}

impl Random {
    pub fn new(seed: u32) -> Random {
        Random {
            seed,
            counter: 0,
            wild: seed.is_multiple_of(4),
            absorbing: seed % 4 == 1,
        }
    }

    pub fn u32(&mut self) -> u32 {
        self.counter += 1;
        philox([self.counter, 0, 0, 0], [self.seed, 7])[0]
    }

    /// Below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.u32() as usize % n
    }

    pub fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    /// About normal, or anything at all.
    pub fn float(&mut self) -> f32 {
        if self.wild && self.chance(50) {
            const WILD: [f32; 10] = [
                0.0,
                -0.0,
                1e-40,
                -3e-39,
                3e38,
                -3e38,
                f32::INFINITY,
                f32::NEG_INFINITY,
                f32::NAN,
                1e-12,
            ];
            return WILD[self.below(WILD.len())];
        }
        if self.absorbing {
            let one = if self.chance(2) { 1.0 } else { -1.0 };
            let small = (1 + self.below(255)) as f32 / (1 << 30) as f32;
            return one * [1.0, small, small * small][self.below(3)];
        }
        let sum: i64 = (0..4).map(|_| i64::from(self.u32()) - (1 << 31)).sum();
        sum as f32 / (1u64 << 31) as f32
    }

    pub fn f32s(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float()).collect()
    }

    pub fn bf16s(&mut self, n: usize) -> Vec<bf16> {
        (0..n).map(|_| bf16::from_f32(self.float())).collect()
    }

    pub fn codes(&mut self, n: usize) -> Vec<i8> {
        (0..n).map(|_| self.u32() as i8).collect()
    }

    /// Scales of codes: small and positive.
    pub fn scales(&mut self, n: usize) -> Vec<f32> {
        (0..n)
            .map(|_| (1 + self.below(1000)) as f32 * 1e-5)
            .collect()
    }

    /// `n` different numbers below `most`.
    pub fn distinct(&mut self, n: usize, most: usize) -> Vec<u32> {
        let mut all: Vec<u32> = (0..most as u32).collect();
        for i in 0..n {
            let j = i + self.below(most - i);
            all.swap(i, j);
        }
        all.truncate(n);
        all
    }

    /// Rows of `sequences` sequences in `rows`, some empty, some rows inert.
    pub fn sequence_rows(&mut self, rows: usize, sequences: usize) -> Vec<u32> {
        let live = match self.chance(6) {
            true => 0,
            false => rows - self.below(rows / 2 + 1),
        };
        let mut bounds: Vec<u32> = (0..=sequences)
            .map(|_| self.below(live + 1) as u32)
            .collect();
        bounds.sort_unstable();
        if !self.chance(4) {
            (bounds[0], bounds[sequences]) = (0, live as u32);
        }
        bounds
    }

    /// Slots of a step: `(state_read, state_write, slots)`.
    pub fn slots(&mut self, seq_rows: &[u32], rows: usize) -> (Vec<u32>, Vec<u32>, usize) {
        let sequences = seq_rows.len() - 1;
        let slots = rows + sequences + 2;
        let mut free = self.distinct(slots, slots);
        let shared = free.pop().expect("one is spare");
        let (mut reads, mut writes) = (Vec::new(), vec![NONE; rows]);
        for w in seq_rows.windows(2) {
            let own = free.pop().expect("one a sequence");
            let read = [NONE, own, own, shared][self.below(4)];
            reads.push(read);
            let rows = w[0] as usize..w[1] as usize;
            let mut own_is_free = true;
            for row in rows.clone() {
                let last = row + 1 == rows.end;
                if last || self.chance(3) {
                    let in_place = own_is_free && (last || self.chance(3));
                    own_is_free &= !in_place;
                    writes[row] = if in_place {
                        own
                    } else {
                        free.pop().expect("one a row")
                    };
                }
            }
        }
        (reads, writes, slots)
    }

    /// Sequence of each row, `NONE` where it has none.
    pub fn row_seq(&mut self, seq_rows: &[u32], rows: usize) -> Vec<u32> {
        let mut row_seq = vec![NONE; rows];
        for (s, w) in seq_rows.windows(2).enumerate() {
            row_seq[w[0] as usize..w[1] as usize].fill(s as u32);
        }
        row_seq
    }
}
