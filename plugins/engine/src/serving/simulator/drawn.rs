//! What a seed draws.

use super::alone::{PAGE, POSITIONS, alone};
use crate::serving::{Sampling, ServingRequest, Settings, Spec};
use layerlet_core::numerics::draw_u64;

/// Numbers of a seed, in order.
pub struct Dice {
    seed: u64,
    thrown: u32,
}

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice { seed, thrown: 0 }
    }

    /// One of `0..n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.thrown += 1;
        (draw_u64(self.seed, self.thrown) % n as u64) as usize
    }

    /// Once in `n`.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// A request that can be made again.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    pub prompt: Vec<u32>,
    pub max_tokens: usize,
    pub sampling: Sampling,
    pub stop_ids: Vec<u32>,
    pub client: String,
    pub logprobs: bool,
    pub digest: bool,
}

impl Asked {
    /// Three beginnings of a page, then the same tokens for everybody, then some of one's own: prefixes are found, and pages
    /// that look alike stand behind different ones. Few ids, so that texts repeat.
    pub fn draw(dice: &mut Dice) -> Asked {
        let length = 1 + dice.below(POSITIONS * 2 / 3);
        let shared = length - dice.below(length.min(2 * PAGE));
        let family = dice.below(3);
        let prompt = (0..length).map(|at| match at {
            at if at >= shared => dice.below(40) as u32,
            at if at < PAGE => (family * 31 + at) as u32,
            at => 100 + at as u32,
        });
        let prompt: Vec<u32> = prompt.collect();
        let sampling = Sampling {
            temperature: [0.0, 0.0, 0.7, 1.0][dice.below(4)],
            top_p: [1.0, 0.9][dice.below(2)],
            repetition_penalty: [1.0, 1.0, 1.3][dice.below(3)],
            presence_penalty: [0.0, 0.0, 0.5][dice.below(3)],
            seed: dice.below(1000) as u64,
            ..Sampling::default()
        };
        Asked {
            max_tokens: 1 + dice.below((POSITIONS - length).min(12)),
            stop_ids: (0..dice.below(60) as u32).collect(),
            client: format!("client {}", dice.below(3)),
            logprobs: dice.once_in(8),
            digest: dice.once_in(3),
            prompt,
            sampling,
        }
    }

    /// The text that it will have, here and there wrong.
    fn foretold(&self, dice: &mut Dice) -> Vec<u32> {
        let tokens = alone(self.request()).tokens;
        let guessed = tokens.into_iter().map(|id| id ^ u32::from(dice.once_in(5)));
        self.prompt.iter().copied().chain(guessed).collect()
    }

    pub fn request(&self) -> ServingRequest {
        ServingRequest {
            prompt: self.prompt.clone(),
            max_tokens: self.max_tokens,
            sampling: self.sampling,
            stop_ids: self.stop_ids.clone(),
            client: self.client.clone(),
            logprobs: self.logprobs.then_some(2),
            prompt_logprobs: self.logprobs.then_some(1),
            digest: self.digest,
            processor: None,
        }
    }
}

/// Memory that is nearly always short.
pub struct Room {
    pub settings: Settings,
    pub state_slots: usize,
    pub kv_pages: usize,
}

impl Room {
    pub fn draw(dice: &mut Dice, asked: &[Asked]) -> Room {
        let max_sequences = 1 + dice.below(5);
        let k = 1 + dice.below(4);
        let spec = match dice.below(4) {
            0 => Spec::Off,
            1 => Spec::NGram { k },
            2 => Spec::Mtp { k },
            _ => Spec::Oracle {
                k,
                tokens: asked.iter().map(|a| a.foretold(dice)).collect(),
            },
        };
        Room {
            settings: Settings {
                max_sequences,
                token_budget: max_sequences + dice.below(24),
                queue: 64,
                prefix_cache_pages: [0, 3, 8, usize::MAX][dice.below(4)],
                state_snapshots: dice.below(8),
                spec,
            },
            state_slots: 1 + dice.below(max_sequences * 6),
            kv_pages: POSITIONS / PAGE + dice.below(3 * POSITIONS / PAGE),
        }
    }
}
