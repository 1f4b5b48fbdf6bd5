//! Sampling with exact sums.
//!
//! One output row after the other, on its bf16 logits widened to f32:
//!
//! 1. **Penalties.** With `n` the number of times id `v` occurs in the generated part of the row's history: if `v` occurs
//!    in the prompt or the generated part, `l = l > 0 ? l / repetition : l * repetition`; then, if `n > 0`,
//!    `l = (l - frequency * f32(n)) - presence`. f32, each operation rounded.
//! 2. **Greedy.** `temperature == 0` ends here with [`super::argmax`] of the penalised logits.
//! 3. **Temperature.** `l = l / temperature`, f32.
//! 4. **Weights.** `w_v = floor(exp(l_v - max l) * 2^32)` as u64; the largest logits have exactly 2^32. Every sum from here
//!    on is a sum of integers, exact in any order on any device. What is less than 2^-32 of the likeliest token has
//!    weight 0 and cannot be drawn.
//! 5. **Filters**, by rank (logit descending, id ascending), over the ids whose weight is not 0:
//!    top-k keeps the first `k` (0: all), ties beyond them cut by id; min-p keeps `w >= floor(min_p * 2^32)`; top-p keeps the
//!    shortest run of ranks whose sum reaches its part of what top-k and min-p left:
//!    `sum * 2^32 >= floor(top_p * 2^32) * total`, in u128. Each keeps the first ranks, and the very first always stays.
//! 6. **Draw.** `r = floor(u * total / 2^64)` with 64 random bits `u` of [`draw_u64`] for the row's seed and position; the
//!    kept ids are walked in *ascending id* until the running sum exceeds `r`. Rank decides what is kept, not where in
//!    the sum it lies, so that a device need not sort to draw.
//!
//! An inert row (`out_rows[r] == NONE`) gives `NONE`. The draw depends on seed and position alone, so a token does not
//! depend on batch, chunking or speculation.
//!
//! Values that a host refuses are defined all the same:
//!
//! | value                          | what happens                                                        |
//! |--------------------------------|---------------------------------------------------------------------|
//! | logit NaN                      | weight 0, never drawn; loses every comparison                       |
//! | logit -inf                     | weight 0, never drawn                                               |
//! | logit +inf                     | the infinities share the draw equally, everything else has weight 0 |
//! | every logit NaN or -inf        | `argmax`: the first -inf, id 0 if there is none                     |
//! | `top_k` 0, or at least `V`     | off                                                                 |
//! | `top_p` NaN, or at least 1     | off                                                                 |
//! | `top_p` at most 0              | the first rank alone                                                |
//! | `min_p` NaN, or at most 0      | off                                                                 |
//! | `min_p` above 1                | the first rank alone                                                |
//! | `temperature` -0               | greedy                                                              |
//! | `temperature` negative, NaN    | step 3 as written: the order turns over, or every logit is NaN      |
//! | a penalty that makes NaN       | that logit is NaN                                                   |
//!
//! Errors: history bounds that do not ascend or leave the buffer, and history ids that are no token, are refused when it
//! runs.
//!
//! Source and choice: parameters and their order are vLLM's (`apply_penalties`, then temperature, min-p, top-k, top-p).
//! Its top-k keeps all ties with the k-th logit and its float sums depend on the sort; the integer arithmetic is ours.

use super::{argmax, check_vocab};
use crate::NONE;
use crate::buffer::{BufferError, BufferTable};
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::{bf16, draw_u64, exp};
use alloc::collections::BTreeMap;
use alloc::{format, vec::Vec};

operation! {
    /// Penalties, temperature, top-k, min-p, top-p, then one draw keyed by seed and position.
    pub struct Sample {
        /// bf16 `[R, V]`
        read logits: bf16,
        /// u32 `[R]`
        read out_rows: u32,
        /// f32 `[R]`: 0 is greedy
        read temperature: f32,
        /// u32 `[R]`: 0 is off
        read top_k: u32,
        /// f32 `[R]`: 1 is off
        read top_p: f32,
        /// f32 `[R]`: 0 is off
        read min_p: f32,
        /// f32 `[R]`: 1 is off
        read repetition_penalty: f32,
        /// f32 `[R]`: 0 is off
        read presence_penalty: f32,
        /// f32 `[R]`: 0 is off
        read frequency_penalty: f32,
        /// u32 `[R, 2]`: low word, high word
        read seed: u32,
        /// u32 `[R]`: position of the token that is drawn
        read draw_position: u32,
        /// u32 `[capacity]`: token ids, prompt then generated, of each row in turn
        read history: u32,
        /// u32 `[R + 1]`
        read history_start: u32,
        /// u32 `[R]`: index in `history` where the generated part of the row starts
        read history_generated: u32,
        /// u32 `[R]`
        write tokens: u32,
        ;
    }
}

impl Operation for Sample {
    const NAME: &'static str = "sample";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        check_sample(self, buffers).map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let mut tokens = memory.take(self.tokens);
        let [_, vocab] = memory.dims(self.logits);
        let logits = memory.get(self.logits).chunks_exact(vocab);
        let mut outcome = Ok(());
        for (row, (token, logits)) in tokens.iter_mut().zip(logits).enumerate() {
            *token = NONE;
            if memory.get(self.out_rows)[row] == NONE {
                continue;
            }
            match self.row(memory, row) {
                Ok((rule, draw, history)) => *token = sample_row(logits, &rule, &history, draw),
                Err(e) => outcome = outcome.and(Err(e)),
            }
        }
        memory.put(self.tokens, tokens);
        outcome
    }
}

fn check_sample(op: &Sample, buffers: &BufferTable) -> Result<(), BufferError> {
    let [rows, vocab] = buffers.dims(op.logits)?;
    check_vocab(op.logits, vocab, buffers)?;
    for buf in [
        op.out_rows,
        op.top_k,
        op.draw_position,
        op.history_generated,
        op.tokens,
    ] {
        buffers.expect(buf, &[rows])?;
    }
    let floats = [
        op.temperature,
        op.top_p,
        op.min_p,
        op.repetition_penalty,
        op.presence_penalty,
        op.frequency_penalty,
    ];
    for buf in floats {
        buffers.expect(buf, &[rows])?;
    }
    buffers.expect(op.seed, &[rows, 2])?;
    let [_] = buffers.dims(op.history)?;
    buffers.expect(op.history_start, &[rows + 1])
}

impl Sample {
    /// Parameters, random bits and history of one output row.
    fn row<'a>(
        &self,
        memory: &'a Memory<'_>,
        row: usize,
    ) -> Result<(SampleRule, u64, History<'a>), LaunchError> {
        let seed = &memory.get(self.seed)[2 * row..];
        let seed = u64::from(seed[1]) << 32 | u64::from(seed[0]);
        let rule = SampleRule {
            temperature: memory.get(self.temperature)[row],
            top_k: memory.get(self.top_k)[row],
            top_p: memory.get(self.top_p)[row],
            min_p: memory.get(self.min_p)[row],
            repetition: memory.get(self.repetition_penalty)[row],
            presence: memory.get(self.presence_penalty)[row],
            frequency: memory.get(self.frequency_penalty)[row],
        };
        let starts = memory.get(self.history_start);
        let (start, end) = (starts[row] as usize, starts[row + 1] as usize);
        let split = memory.get(self.history_generated)[row] as usize;
        let history = memory.get(self.history);
        let parts = history.get(start..split).zip(history.get(split..end));
        let (prompt, generated) = parts.ok_or_else(|| {
            let expected = "start <= generated <= end, within the buffer";
            LaunchError::step_data(Self::NAME, "a history bound", split as u32, expected)
        })?;
        let [_, vocab] = memory.dims(self.logits);
        let stray = |id: &&u32| **id as usize >= vocab;
        if let Some(&id) = history[start..end].iter().find(stray) {
            let expected = format!("below {vocab}");
            return Err(LaunchError::step_data(
                Self::NAME,
                "an id of the history",
                id,
                expected,
            ));
        }
        let draw = draw_u64(seed, memory.get(self.draw_position)[row]);
        Ok((rule, draw, History { prompt, generated }))
    }
}

/// Parameters of one row, as the step buffers hold them.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct SampleRule {
    pub temperature: f32,
    pub top_k: u32,
    pub top_p: f32,
    pub min_p: f32,
    pub repetition: f32,
    pub presence: f32,
    pub frequency: f32,
}

/// Token ids that penalties count, all within the vocabulary.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct History<'a> {
    pub prompt: &'a [u32],
    pub generated: &'a [u32],
}

/// The token of one row, given 64 random bits.
pub fn sample_row(logits: &[bf16], rule: &SampleRule, history: &History<'_>, draw: u64) -> u32 {
    let mut logits: Vec<f32> = logits.iter().map(|l| l.to_f32()).collect();
    penalise(&mut logits, rule, history);
    if rule.temperature == 0.0 {
        return argmax(logits);
    }
    logits.iter_mut().for_each(|l| *l /= rule.temperature);
    let weights = integer_weights(&logits);
    let kept = filter(&logits, &weights, rule);
    let total: u64 = kept.iter().map(|&id| weights[id as usize]).sum();
    if total == 0 {
        return argmax(logits);
    }
    let mut left = ((u128::from(draw) * u128::from(total)) >> 64) as u64;
    for &id in &kept {
        match left.checked_sub(weights[id as usize]) {
            Some(rest) => left = rest,
            None => return id,
        }
    }
    unreachable!("the draw is below the total")
}

fn penalise(logits: &mut [f32], rule: &SampleRule, history: &History<'_>) {
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    for &id in history.prompt {
        counts.entry(id).or_default();
    }
    for &id in history.generated {
        *counts.entry(id).or_default() += 1;
    }
    for (id, generated) in counts {
        let l = &mut logits[id as usize];
        *l = if *l > 0.0 {
            *l / rule.repetition
        } else {
            *l * rule.repetition
        };
        if generated > 0 {
            *l = (*l - rule.frequency * generated as f32) - rule.presence;
        }
    }
}

/// `floor(exp(l - max) * 2^32)`.
fn integer_weights(logits: &[f32]) -> Vec<u64> {
    let numbers = logits.iter().copied().filter(|l| !l.is_nan());
    let max = numbers.fold(f32::NEG_INFINITY, |m, l| if l > m { l } else { m });
    let weight = |&l: &f32| match l {
        l if l.is_nan() || l == f32::NEG_INFINITY => 0,
        l if l == max => 1 << 32,
        l => fixed_point(exp(l - max)),
    };
    logits.iter().map(weight).collect()
}

/// `floor(x * 2^32)`: the product is exact. Below 0 and NaN give 0.
fn fixed_point(x: f32) -> u64 {
    (x * 4_294_967_296.0) as u64
}

/// The ids that the filters keep, ascending.
fn filter(logits: &[f32], weights: &[u64], rule: &SampleRule) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..logits.len() as u32)
        .filter(|&id| weights[id as usize] > 0)
        .collect();
    let by_rank = |a: &u32, b: &u32| {
        let order = logits[*b as usize].partial_cmp(&logits[*a as usize]);
        order.expect("a NaN has no weight").then(a.cmp(b))
    };
    ids.sort_by(by_rank);
    if rule.top_k > 0 {
        ids.truncate(rule.top_k as usize);
    }
    let weight = |id: &u32| weights[*id as usize];
    let floor = fixed_point(rule.min_p);
    let first = ids.first().copied();
    ids.retain(|id| weight(id) >= floor || Some(*id) == first);
    if rule.top_p < 1.0 {
        let total: u64 = ids.iter().map(weight).sum();
        let wanted = u128::from(fixed_point(rule.top_p)) * u128::from(total);
        let mut sum = 0u64;
        let reached = ids.iter().position(|id| {
            sum += weight(id);
            u128::from(sum) << 32 >= wanted
        });
        ids.truncate(reached.map_or(ids.len(), |n| n + 1));
    }
    ids.sort_unstable();
    ids
}
