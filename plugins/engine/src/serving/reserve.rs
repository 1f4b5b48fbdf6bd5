//! What each running sequence feeds in the next step, and the pages and slots for it.

use super::batch::Batch;
use super::sequence::Sequence;
use crate::error::EngineError;

/// Rows of a step whose logits a prompt's log probabilities need: they go to the host.
const PROMPT_LOGPROB_ROWS: usize = 32;

/// One sequence's part of a step.
pub(super) struct Part {
    /// Tokens that belong to the text, then drafts.
    pub tokens: Vec<u32>,
    pub drafts: usize,
    /// `(row, slot)`: where the state after a row goes.
    pub writes: Vec<(usize, u32)>,
    /// Rows whose logits are wanted.
    pub outputs: Vec<usize>,
    /// The first of them that draws a token; none while the text is not fed.
    pub draws: Option<usize>,
}

impl Part {
    /// Rows that belong to the text.
    pub fn known(&self) -> usize {
        self.tokens.len() - self.drafts
    }
}

impl Batch {
    /// Parts of the first running sequences; the others had to give way.
    pub(super) fn reserve(&mut self) -> Result<Vec<Part>, EngineError> {
        let mut parts: Vec<Part> = Vec::new();
        let mut left = self.settings.token_budget;
        while parts.len() < self.running.len() {
            // Each later sequence gets a row.
            let later = self.running.len() - parts.len() - 1;
            match self.part(parts.len(), left - later) {
                Some(part) => {
                    left -= part.tokens.len();
                    parts.push(part);
                }
                None if self.running.len() > 1 => self.preempt_last(),
                None => {
                    let found = format!(
                        "{} pages and {} slots",
                        self.pages.size(),
                        self.slots.size()
                    );
                    let expected = "enough for one sequence of the length that was admitted";
                    return Err(EngineError::request("the room for state", found, expected));
                }
            }
        }
        Ok(parts)
    }

    /// The part of sequence `n` in at most `most` rows; none when memory is short.
    fn part(&mut self, n: usize, most: usize) -> Option<Part> {
        let sequence = &self.running[n];
        let (fed, pending) = (sequence.fed, sequence.pending());
        let owes = sequence.owes_prompt_logprobs();
        let most = if owes {
            most.min(PROMPT_LOGPROB_ROWS)
        } else {
            most
        };
        let rows = pending.min(most);
        self.grow(n, fed + rows).then_some(())?;
        let drafts = match pending {
            1 => self.drafts(n, most - 1),
            _ => Vec::new(),
        };
        let sequence = &self.running[n];
        let draws = (rows == pending).then_some(rows - 1);
        let first = match owes {
            true => sequence.prompt_logprobs.len().max(fed) - fed,
            false => rows,
        };
        // Row `t` says what follows position `fed + t`: a prompt of P tokens has P - 1 rows that do.
        let end = sequence
            .request
            .prompt
            .len()
            .saturating_sub(fed + 1)
            .min(rows);
        let mut outputs: Vec<usize> = (first..end.max(first)).collect();
        outputs.extend(draws.into_iter().flat_map(|row| row..rows + drafts.len()));
        let mut tokens = sequence.text[fed..fed + rows].to_vec();
        tokens.extend(&drafts);
        let mut part = Part {
            tokens,
            drafts: drafts.len(),
            writes: Vec::new(),
            outputs,
            draws,
        };
        self.reserve_slots(n, &mut part).then_some(part)
    }

    /// Pages for positions below `end`, from the cache's where none is free.
    fn grow(&mut self, n: usize, end: usize) -> bool {
        for _ in self.running[n].pages.len()..self.pages_for(end) {
            match self.take_page() {
                Some(page) => self.running[n].pages.push(page),
                None => return false,
            }
        }
        true
    }

    fn take_page(&mut self) -> Option<u32> {
        loop {
            match self.pages.take() {
                Some(page) => return Some(page),
                None if self.cache.drop_page(&mut self.pages, &mut self.slots) => {}
                None => return None,
            }
        }
    }

    fn take_slot(&mut self) -> Option<u32> {
        loop {
            match self.slots.take() {
                Some(slot) => return Some(slot),
                None if self.cache.drop_state(&mut self.slots) => {}
                None => return None,
            }
        }
    }

    /// Drafts of a decoding sequence, as far as there is room for their positions.
    fn drafts(&mut self, n: usize, most: usize) -> Vec<u32> {
        let sequence = &self.running[n];
        let most = most.min(sequence.left_to_generate() - 1);
        let mut drafts = self.settings.spec.propose(sequence, most);
        let vocab = self.model.layout().config().vocab;
        let valid = drafts
            .iter()
            .take_while(|id| (**id as usize) < vocab)
            .count();
        drafts.truncate(valid);
        let fed = sequence.fed;
        // The prediction head writes keys of its own past the drafts.
        let ahead = self.settings.spec.drafts();
        let positions = self.model.layout().capacity().max_positions;
        let end = (fed + 1 + drafts.len() + ahead).min(positions);
        if ahead > 0 && !self.grow(n, end) {
            let room = self.running[n].pages.len() * self.page_size();
            drafts.truncate(room.saturating_sub(fed + 1));
        }
        drafts
    }

    /// A slot for the state after the last row of the text and after every draft, and for the cache's wishes as far
    /// as slots are free for them.
    fn reserve_slots(&mut self, n: usize, part: &mut Part) -> bool {
        let (fed, known) = (self.running[n].fed, part.known());
        let own = self.running[n]
            .slot
            .filter(|slot| self.slots.holders(*slot) == 1);
        // Dropping a cached state may make the own slot this sequence's alone.
        let target = own.or_else(|| self.take_slot()).or_else(|| {
            let slot = self.running[n].slot;
            slot.filter(|slot| self.slots.holders(*slot) == 1)
        });
        let Some(target) = target else {
            return false;
        };
        part.writes.push((known - 1, target));
        for row in known..part.tokens.len() {
            let Some(slot) = self.take_slot() else {
                part.tokens.truncate(row);
                part.outputs.retain(|output| *output < row);
                part.drafts = row - known;
                break;
            };
            part.writes.push((row, slot));
        }
        let wanted: Vec<usize> = inside(&self.running[n], fed, known);
        for (at, row) in wanted.into_iter().enumerate() {
            match self.slots.take() {
                Some(slot) => part.writes.insert(at, (row, slot)),
                None => break,
            }
        }
        true
    }
}

/// Rows before the last one of `known` whose state the cache wants.
fn inside(sequence: &Sequence, fed: usize, known: usize) -> Vec<usize> {
    let wanted = sequence.wanted.iter();
    let inner = wanted.filter(|at| **at > fed && **at < fed + known);
    inner.map(|at| at - fed - 1).collect()
}
