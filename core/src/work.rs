//! What one step really moves and computes: the range of a [`Traffic`](crate::launch::Traffic), closed by how
//! much of its shape the step fills and where its routes lead.
//!
//! Every byte that a launch must touch counts once, however often a kernel comes back to it: keys that a
//! chunk's rows share, or a weight that several rows of an expert use, are read once.

use crate::buffer::BufferId;
use alloc::collections::BTreeMap;
use core::ops::{Add, AddAssign};
use serde::{Deserialize, Serialize};

/// Where the pairs of a layer's router lead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Routed {
    /// Pairs of a row and an expert.
    pub pairs: u64,
    /// Different experts among them.
    pub experts: u64,
}

/// How much of its shape a step fills.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Rows that belong to a sequence.
    pub rows: u64,
    /// Sequences that start from a state slot.
    pub state_reads: u64,
    /// Rows after which the state is kept.
    pub state_writes: u64,
    /// Cached positions that the sequences see: of each, its last position + 1.
    pub positions: u64,
    /// Routes of each layer, by the buffer of its experts' offsets.
    pub routes: BTreeMap<BufferId, Routed>,
}

/// What a launch, or several, moved and computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Bytes read and written.
    pub bytes: u64,
    /// Products of s8 codes, each added to an i32 sum.
    pub int8_multiply_adds: u64,
    /// Products of bf16 values in linear layers, each added to an f32 sum.
    pub bf16_multiply_adds: u64,
}

impl Work {
    /// Multiply-adds of a linear whose weights are s8.
    pub(crate) fn int8(multiply_adds: u64) -> Work {
        Work {
            int8_multiply_adds: multiply_adds,
            ..Work::default()
        }
    }

    /// Multiply-adds of a linear whose weights are bf16.
    pub(crate) fn bf16(multiply_adds: u64) -> Work {
        Work {
            bf16_multiply_adds: multiply_adds,
            ..Work::default()
        }
    }
}

impl Add for Work {
    type Output = Work;

    fn add(self, other: Work) -> Work {
        Work {
            bytes: self.bytes + other.bytes,
            int8_multiply_adds: self.int8_multiply_adds + other.int8_multiply_adds,
            bf16_multiply_adds: self.bf16_multiply_adds + other.bf16_multiply_adds,
        }
    }
}

impl AddAssign for Work {
    fn add_assign(&mut self, other: Work) {
        *self = *self + other;
    }
}

impl core::iter::Sum for Work {
    fn sum<I: Iterator<Item = Work>>(works: I) -> Work {
        works.fold(Work::default(), Add::add)
    }
}
