//! Continuous batching: who runs, who waits, who gives way.
//!
//! Every step feeds all running sequences: one row and drafts to those that decode, a chunk to those whose text is not
//! fed yet. Where memory is short the cache gives way first, then the sequence that was admitted last; it starts again from
//! its text, before anybody new.

use super::pool::Pool;
use super::prefix::PrefixCache;
use super::receiver::{Receiver, channel};
use super::request::{Event, ServingRequest};
use super::sequence::Sequence;
use super::settings::Settings;
use super::stats::Stats;
use super::waiting::Waiting;
use crate::error::EngineError;
use crate::model::Model;
use std::collections::VecDeque;

/// A model and the sequences that share it. Deterministic: the same calls give the same steps.
pub struct Batch {
    pub(super) model: Model,
    pub(super) settings: Settings,
    /// By admission.
    pub(super) running: Vec<Sequence>,
    pub(super) preempted: VecDeque<Sequence>,
    pub(super) pages: Pool,
    pub(super) slots: Pool,
    pub(super) cache: PrefixCache,
    pub(super) stats: Stats,
    /// Tokens fed for clients since the last admission.
    pub(super) charges: Vec<(String, u64)>,
    /// Clients of requests that have ended since.
    pub(super) ended: Vec<String>,
}

impl Batch {
    /// Takes a model over: all of its pages and slots are the batch's.
    pub fn new(model: Model, settings: Settings) -> Result<Batch, EngineError> {
        settings.validate(model.layout())?;
        let capacity = *model.layout().capacity();
        let drafts = settings.spec.drafts();
        Ok(Batch {
            pages: Pool::new(capacity.kv_pages),
            slots: Pool::new(capacity.state_slots),
            cache: PrefixCache::new(settings.prefix_cache_pages, settings.state_snapshots),
            stats: Stats {
                drafted: vec![0; drafts],
                accepted: vec![0; drafts],
                ..Stats::default()
            },
            running: Vec::new(),
            preempted: VecDeque::new(),
            charges: Vec::new(),
            ended: Vec::new(),
            model,
            settings,
        })
    }

    /// Checks a request and lets it wait.
    pub fn submit(
        &self,
        request: ServingRequest,
        waiting: &mut Waiting,
    ) -> Result<Receiver, EngineError> {
        request.check(self.model.layout())?;
        let (events, receiver) = channel();
        waiting.push(Sequence::new(request, events));
        Ok(receiver)
    }

    /// Whether no admitted request is left.
    pub fn idle(&self) -> bool {
        self.running.is_empty() && self.preempted.is_empty()
    }

    /// Drops what nobody waits for any more, then lets in whom there is room for.
    pub fn admit(&mut self, waiting: &mut Waiting) {
        for (client, tokens) in self.charges.drain(..) {
            waiting.charge(&client, tokens);
        }
        self.drop_cancelled(waiting);
        for client in self.ended.drain(..) {
            waiting.ended(&client);
        }
        let mut room = self.room();
        while self.running.len() < self.settings.max_sequences {
            let next = self.preempted.front().or_else(|| waiting.peek());
            let Some(next) = next else { break };
            let needed = self.pages_for(next.text.len());
            // Whoever is alone has all the memory.
            if !self.running.is_empty() && (needed > room || !self.slot_in_reach()) {
                break;
            }
            room = room.saturating_sub(needed);
            let next = self.preempted.pop_front().or_else(|| waiting.pop());
            let Some(next) = next else { break };
            let next = self.started(next);
            self.running.push(next);
        }
    }

    fn drop_cancelled(&mut self, waiting: &mut Waiting) {
        self.stats.cancelled += waiting.sweep() as u64;
        let (pages, slots) = (&mut self.pages, &mut self.slots);
        let gone = self.running.extract_if(.., |s| s.cancelled());
        for mut sequence in gone {
            sequence.release(pages, slots);
            self.stats.cancelled += 1;
            self.ended.push(sequence.request.client);
        }
        for _ in 0..self.preempted.len() {
            match self.preempted.pop_front() {
                Some(sequence) if sequence.cancelled() => {
                    self.stats.cancelled += 1;
                    self.ended.push(sequence.request.client);
                }
                sequence => self.preempted.extend(sequence),
            }
        }
    }

    /// Pages that are free, or could be, and that no running sequence will take for the text that it has.
    fn room(&self) -> usize {
        let owed = self.running.iter().map(|s| {
            let text = self.pages_for(s.text.len());
            text.saturating_sub(s.pages.len())
        });
        let free = self.pages.free() + self.cache.idle_pages(&self.pages);
        free.saturating_sub(owed.sum())
    }

    fn slot_in_reach(&self) -> bool {
        let fresh = self.running.iter().filter(|s| s.slot.is_none()).count();
        self.slots.free() + self.cache.idle_slots(&self.slots) > fresh
    }

    pub(super) fn page_size(&self) -> usize {
        self.model.layout().capacity().page_size
    }

    pub(super) fn pages_for(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.page_size())
    }

    /// Starts from the longest prefix that the cache knows.
    fn started(&mut self, mut sequence: Sequence) -> Sequence {
        let size = self.page_size();
        // The last token is fed in any case: its logits are wanted.
        let most = (sequence.text.len() - 1) / size;
        self.cache.keys(&mut sequence.keys, &sequence.text, size);
        let usable = sequence.keys.len().min(most);
        let found = match sequence.owes_prompt_logprobs() {
            true => Default::default(),
            false => self.cache.find(&sequence.keys[..usable]),
        };
        let cached = found.pages.len() * size;
        found.pages.iter().for_each(|page| self.pages.share(*page));
        found
            .state
            .into_iter()
            .for_each(|slot| self.slots.share(slot));
        sequence.fed = cached;
        sequence.published = found.pages.len();
        // Where texts part, and where this one's full pages end.
        let wanted = [found.known.max(found.pages.len()), usable].map(|pages| pages * size);
        sequence.wanted = wanted.into_iter().filter(|at| *at > cached).collect();
        sequence.wanted.dedup();
        sequence.pages = found.pages;
        sequence.slot = found.state;
        if !sequence.admitted {
            sequence.admitted = true;
            sequence.usage.cached = cached;
            self.stats.prompt_tokens += sequence.text.len() as u64;
            if self.cache.enabled() {
                self.stats.cache_queried_tokens += sequence.text.len() as u64;
                self.stats.cache_hit_tokens += cached as u64;
            }
        }
        sequence
    }

    /// The one admitted last gives up what it holds.
    pub(super) fn preempt_last(&mut self) {
        if let Some(mut sequence) = self.running.pop() {
            sequence.release(&mut self.pages, &mut self.slots);
            self.stats.preemptions += 1;
            self.preempted.push_front(sequence);
        }
    }

    /// Runs one step of all running sequences; whether there were any.
    pub fn step(&mut self) -> Result<bool, EngineError> {
        let parts = self.reserve()?;
        if parts.is_empty() {
            return Ok(false);
        }
        let ran = self.run(&parts)?;
        self.stats.steps += 1;
        self.commit(&parts, ran)?;
        Ok(true)
    }

    /// Ends everything with a reason.
    pub fn fail(&mut self, waiting: &mut Waiting, reason: &str) {
        let admitted = self.running.drain(..).chain(self.preempted.drain(..));
        for mut sequence in admitted {
            sequence.release(&mut self.pages, &mut self.slots);
            sequence.say(Event::Failed(reason.to_string()));
            self.ended.push(sequence.request.client);
            self.stats.failed += 1;
        }
        for sequence in waiting.drain() {
            sequence.say(Event::Failed(reason.to_string()));
            self.stats.failed += 1;
        }
    }

    /// What it did, and holds now.
    pub fn stats(&self, waiting: &Waiting) -> Stats {
        let (idle_pages, idle_slots) = (
            self.cache.idle_pages(&self.pages),
            self.cache.idle_slots(&self.slots),
        );
        Stats {
            running: self.running.len(),
            waiting: waiting.len() + self.preempted.len(),
            kv_pages_used: self.pages.size() - self.pages.free() - idle_pages,
            kv_pages_cached: idle_pages,
            kv_pages_total: self.pages.size(),
            slots_used: self.slots.size() - self.slots.free() - idle_slots,
            slots_cached: idle_slots,
            slots_total: self.slots.size(),
            ..self.stats.clone()
        }
    }
}
