//! Ways to cut sequences into steps, and the check that none of them changes a byte.

use super::{Random, assert_same_bits, bytes};
use layerlet_core::NONE;
use layerlet_core::dtype::Element;
use layerlet_core::numerics::bf16;
use std::ops::Range;

/// Consecutive rows of one sequence in one step.
#[derive(Clone, Debug)]
pub struct Chunk {
    pub sequence: usize,
    pub rows: Range<usize>,
}

/// Cuts sequences of these lengths into steps: any mix of chunk sizes, any company, any order.
pub fn random_steps(lengths: &[usize], random: &mut Random) -> Vec<Vec<Chunk>> {
    let mut done = vec![0; lengths.len()];
    let mut steps = Vec::new();
    while done.iter().zip(lengths).any(|(d, n)| d < n) {
        let mut step = Vec::new();
        for sequence in random.permutation(lengths.len()) {
            let sequence = sequence as usize;
            let left = lengths[sequence] - done[sequence];
            let most = [0, 1, 1, 2, 5, 64, left][random.below(7)].min(left);
            if most > 0 {
                let start = done[sequence];
                done[sequence] += most;
                step.push(Chunk {
                    sequence,
                    rows: start..start + most,
                });
            }
        }
        steps.push(step);
    }
    steps
}

/// The index buffers of one step of a stateful operation, some rows and sequences inert.
#[derive(Clone, Debug)]
pub struct StateStep {
    pub chunks: Vec<Chunk>,
    /// Rows of the bucket, inert ones included.
    pub rows: usize,
    pub seq_rows: Vec<u32>,
    pub state_read: Vec<u32>,
    pub state_write: Vec<u32>,
}

impl StateStep {
    /// One sequence from zeros, written to slot 0 after its last row.
    pub fn whole(length: usize) -> StateStep {
        StateStep::build(
            vec![Chunk {
                sequence: 0,
                rows: 0..length,
            }],
            &[NONE],
            &[0],
            0,
            0,
        )
    }

    /// `read` and `write` by chunk.
    pub fn build(
        chunks: Vec<Chunk>,
        read: &[u32],
        write: &[u32],
        inert_rows: usize,
        inert_sequences: usize,
    ) -> StateStep {
        let mut seq_rows = vec![0];
        let mut state_write = Vec::new();
        for (chunk, &slot) in chunks.iter().zip(write) {
            state_write.resize(state_write.len() + chunk.rows.len(), NONE);
            *state_write.last_mut().expect("chunks are not empty") = slot;
            seq_rows.push(state_write.len() as u32);
        }
        let live = state_write.len();
        seq_rows.resize(seq_rows.len() + inert_sequences, live as u32);
        state_write.resize(live + inert_rows, NONE);
        let mut state_read = read.to_vec();
        state_read.resize(read.len() + inert_sequences, NONE);
        StateStep {
            chunks,
            rows: live + inert_rows,
            seq_rows,
            state_read,
            state_write,
        }
    }

    /// Rows of the step's input: those of the chunks, then zeros.
    pub fn gather<E: Element>(&self, sequences: &[Vec<E>], width: usize) -> Vec<E> {
        let mut rows: Vec<E> = self
            .chunks
            .iter()
            .flat_map(|c| &sequences[c.sequence][c.rows.start * width..c.rows.end * width])
            .copied()
            .collect();
        rows.resize(self.rows * width, E::default());
        rows
    }
}

/// Runs every sequence alone and at once from zeros, then all of them by a random schedule with random
/// slots over a poisoned state, and compares every output row and every final state.
pub fn assert_any_schedule_equals_alone<E: Element>(
    lengths: &[usize],
    slot_len: usize,
    out_width: usize,
    seed: u64,
    poison: E,
    run: impl Fn(&StateStep, &[usize], &mut Vec<E>) -> Vec<bf16>,
) {
    let mut random = Random::new(seed);
    let slots = 2 * lengths.len() + 1;
    let mut state = vec![poison; slots * slot_len];
    let mut current = vec![NONE; lengths.len()];
    let mut found: Vec<Vec<bf16>> = vec![Vec::new(); lengths.len()];
    for chunks in random_steps(lengths, &mut random) {
        if chunks.is_empty() {
            continue;
        }
        let step = random_slots(chunks, &mut current, slots, &mut random);
        let all: Vec<usize> = (0..lengths.len()).collect();
        let out = run(&step, &all, &mut state);
        let mut row = 0;
        for chunk in &step.chunks {
            let end = row + chunk.rows.len();
            found[chunk.sequence].extend(&out[row * out_width..end * out_width]);
            row = end;
        }
        assert!(
            out[row * out_width..].iter().all(|x| x.to_bits() == 0),
            "inert rows must give zeros"
        );
    }
    for (s, &length) in lengths.iter().enumerate() {
        let mut alone = vec![E::default(); slot_len];
        let out = run(&StateStep::whole(length), &[s], &mut alone);
        let context = format!("sequence {s} of {lengths:?}, seed {seed}");
        assert_same_bits(&found[s], &out, &context);
        let slot = current[s] as usize * slot_len;
        assert_eq!(
            bytes(&state[slot..slot + slot_len]),
            bytes(&alone),
            "{context}: state"
        );
    }
}

/// Each chunk reads its sequence's slot and writes the same one or a free one.
fn random_slots(
    chunks: Vec<Chunk>,
    current: &mut [u32],
    slots: usize,
    random: &mut Random,
) -> StateStep {
    let mut free: Vec<u32> = random.permutation(slots);
    free.retain(|slot| !current.contains(slot));
    let (mut read, mut write) = (Vec::new(), Vec::new());
    for chunk in &chunks {
        let slot = &mut current[chunk.sequence];
        read.push(*slot);
        if *slot == NONE || random.below(2) == 0 {
            *slot = free.pop().expect("two slots a sequence");
        }
        write.push(*slot);
    }
    let (inert_rows, inert_sequences) = (random.below(4), random.below(3));
    StateStep::build(chunks, &read, &write, inert_rows, inert_sequences)
}
