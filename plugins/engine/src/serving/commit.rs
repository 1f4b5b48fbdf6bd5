//! What a step changed: tokens drawn, drafts kept, states chosen, pages and states that the cache may keep.
//!
//! The state after every draft lies in a slot of its own; to accept is to keep the slot at the accepted length.

use super::batch::Batch;
use super::draw::{Drawn, logprobs};
use super::prefix::Inserted;
use super::request::Event;
use super::reserve::Part;
use super::run::{Drew, Ran};
use super::sequence::Sequence;
use super::settings::Spec;
use crate::error::EngineError;
use crate::generate::Finish;
use layerlet_core::numerics::bf16;

impl Batch {
    pub(super) fn commit(&mut self, parts: &[Part], ran: Ran) -> Result<(), EngineError> {
        let bases: Vec<usize> = self.running.iter().map(|s| s.fed).collect();
        let mut output = 0;
        for (n, part) in parts.iter().enumerate() {
            let outputs = output..output + part.outputs.len();
            output = outputs.end;
            let drawn = match &ran.drew {
                Drew::Tokens(tokens, accepted) => {
                    let accepted = accepted.as_ref().map_or(0, |a| a[n]);
                    Ok(self.running[n].take(part, &tokens[outputs], accepted as usize))
                }
                Drew::Logits(logits) => {
                    let vocab = self.model.layout().config().vocab;
                    let rows = &logits[outputs.start * vocab..outputs.end * vocab];
                    self.running[n].draw_all(part, rows, vocab)
                }
            };
            match drawn {
                Ok(drawn) => self.advance(n, part, drawn),
                Err(reason) => {
                    self.choose_slot(n, part, part.known());
                    self.running[n].failure = Some(reason);
                }
            }
        }
        self.predict(parts, &bases, &ran.hidden)?;
        self.remove_finished();
        Ok(())
    }

    /// Takes over the rows that count: those of the text, and of drafts that were drawn too.
    fn advance(&mut self, n: usize, part: &Part, drawn: Vec<Drawn>) {
        let accepted = drawn.len().saturating_sub(1);
        let rows = part.known() + accepted;
        if !drawn.is_empty() {
            self.stats.draws += 1;
            (0..part.drafts).for_each(|k| self.stats.drafted[k] += 1);
            (0..accepted).for_each(|k| self.stats.accepted[k] += 1);
        }
        let client = self.running[n].request.client.clone();
        self.charges.push((client, rows as u64));
        let sequence = &mut self.running[n];
        let before = sequence.usage.generated;
        sequence.hear(drawn);
        self.stats.generated_tokens += (sequence.usage.generated - before) as u64;
        let base = sequence.fed;
        sequence.fed += rows;
        self.publish(n);
        self.keep_states(n, part, base, rows);
        self.choose_slot(n, part, rows);
    }

    /// Gives the cache the pages that are full.
    fn publish(&mut self, n: usize) {
        let size = self.page_size();
        let sequence = &mut self.running[n];
        self.cache.keys(&mut sequence.keys, &sequence.text, size);
        let full = (sequence.fed / size).min(sequence.keys.len());
        for at in sequence.published..full {
            let before = at.checked_sub(1).map(|at| sequence.keys[at]);
            let (key, page) = (sequence.keys[at], sequence.pages[at]);
            match self
                .cache
                .insert(key, before, page, &mut self.pages, &mut self.slots)
            {
                // The prediction head's keys are still to come, and go into a page of one's own.
                Inserted::Known(known) if !matches!(self.settings.spec, Spec::Mtp { .. }) => {
                    self.pages.share(known);
                    self.pages.release(page);
                    sequence.pages[at] = known;
                }
                Inserted::New | Inserted::Known(_) => {}
                Inserted::Refused => break,
            }
            sequence.published = at + 1;
        }
    }

    /// Gives the cache the states after full pages: those it wants, and the last that decoding reached.
    fn keep_states(&mut self, n: usize, part: &Part, base: usize, rows: usize) {
        let size = self.page_size();
        let sequence = &mut self.running[n];
        for &(row, slot) in part.writes.iter().filter(|(row, _)| *row < rows) {
            let end = base + row + 1;
            if !end.is_multiple_of(size) || end / size > sequence.published {
                continue;
            }
            let key = sequence.keys[end / size - 1];
            if sequence.wanted.contains(&end) {
                self.cache.keep(&key, slot, &mut self.slots);
            } else if end > sequence.request.prompt.len()
                && self.cache.keep(&key, slot, &mut self.slots)
                && let Some(left) = sequence.left.replace(key)
            {
                self.cache.forget(&left, &mut self.slots);
            }
        }
    }

    /// The state after `rows` rows is the sequence's; it holds no other.
    fn choose_slot(&mut self, n: usize, part: &Part, rows: usize) {
        let sequence = &mut self.running[n];
        let chosen = part.writes.iter().find(|(row, _)| row + 1 == rows);
        let chosen = chosen.map(|(_, slot)| *slot);
        let mut held: Vec<u32> = part.writes.iter().map(|(_, slot)| *slot).collect();
        held.extend(sequence.slot.filter(|slot| !held.contains(slot)));
        for slot in held.into_iter().filter(|slot| Some(*slot) != chosen) {
            self.slots.release(slot);
        }
        sequence.slot = chosen;
    }

    fn remove_finished(&mut self) {
        for mut sequence in self.running.extract_if(.., |s| s.finished()) {
            sequence.release(&mut self.pages, &mut self.slots);
            match (sequence.failure.take(), sequence.finish) {
                (None, Some(finish)) => {
                    self.stats.finished += 1;
                    sequence.done(finish);
                }
                (reason, _) => {
                    self.stats.failed += 1;
                    sequence.say(Event::Failed(reason.unwrap_or_default()));
                }
            }
            self.ended.push(sequence.request.client);
        }
    }
}

impl Sequence {
    /// Tokens that the device drew and whose drafts it accepted.
    fn take(&self, part: &Part, tokens: &[u32], accepted: usize) -> Vec<Drawn> {
        if part.draws.is_none() {
            return Vec::new();
        }
        let tokens = &tokens[..=accepted];
        let stop = tokens
            .iter()
            .position(|id| self.request.stop_ids.contains(id));
        let count = stop.map_or(tokens.len(), |at| at + 1);
        let drawn = |id: &u32| Drawn {
            id: *id,
            logprobs: None,
        };
        tokens[..count].iter().map(drawn).collect()
    }

    /// Draws from logits until a draft is not what was drawn, or the text ends.
    fn draw_all(
        &mut self,
        part: &Part,
        logits: &[bf16],
        vocab: usize,
    ) -> Result<Vec<Drawn>, String> {
        let mut drawn: Vec<Drawn> = Vec::new();
        for (row, logits) in part.outputs.iter().zip(logits.chunks_exact(vocab)) {
            if part.draws.is_none_or(|first| *row < first) {
                let next = self.request.prompt[self.fed + row + 1];
                let top = self.request.prompt_logprobs.unwrap_or(0);
                self.prompt_logprobs.push(logprobs(logits, next, top));
                continue;
            }
            let drafts = &part.tokens[part.known()..][..drawn.len()];
            let next = self.draw(logits, self.fed + row + 1, drafts)?;
            let id = next.id;
            drawn.push(next);
            let goes_on = part.tokens.get(row + 1) == Some(&id);
            if self.request.stop_ids.contains(&id) || !goes_on {
                break;
            }
        }
        Ok(drawn)
    }

    /// Reports tokens, and sees whether they end the text.
    fn hear(&mut self, drawn: Vec<Drawn>) {
        if drawn.is_empty() {
            return;
        }
        self.usage.steps += 1;
        if self.request.prompt_logprobs.take().is_some() {
            let all = std::mem::take(&mut self.prompt_logprobs);
            self.say(Event::PromptLogprobs(all));
        }
        for Drawn { id, logprobs } in drawn {
            if self.request.stop_ids.contains(&id) {
                self.finish = Some(Finish::Stop);
                return;
            }
            self.text.push(id);
            self.usage.generated += 1;
            self.say(Event::Token { id, logprobs });
            if self.left_to_generate() == 0 {
                self.finish = Some(Finish::Length);
                return;
            }
        }
    }
}
