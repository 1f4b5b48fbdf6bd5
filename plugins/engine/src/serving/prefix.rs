//! Prefixes that were computed before: pages of keys and values, and states of conv and recurrence.
//!
//! A page is known by all the tokens up to its end: `key = SHA-256(key of the page before | tokens)`. Every operation is
//! batch-invariant, so the bytes that another request left are those that this one would compute. A request goes on where a
//! state was kept; a kept state is the very slot that a step wrote, held by the cache too, and never copied.
//!
//! Invariants: a page is dropped only when no page after it is here; a slot or page here counts the cache as a holder.

use super::pool::Pool;
use sha2::{Digest, Sha256};
use std::collections::HashMap;

/// What a text is up to the end of one of its pages.
pub(super) type Key = [u8; 32];

/// How the key of a page follows from the one before it.
pub(super) type Chain = fn(Option<&Key>, &[u32]) -> Key;

/// Over everything up to the page's end.
pub(super) fn chained(before: Option<&Key>, tokens: &[u32]) -> Key {
    let mut hash = Sha256::new();
    hash.update(before.map_or(&[][..], |key| key));
    tokens.iter().for_each(|id| hash.update(id.to_le_bytes()));
    hash.finalize().into()
}

struct Block {
    before: Option<Key>,
    page: u32,
    /// Slot of the state after the page.
    state: Option<u32>,
    /// Pages here that follow it.
    after: usize,
    used: u64,
}

pub(super) struct PrefixCache {
    pub chain: Chain,
    blocks: HashMap<Key, Block>,
    most_pages: usize,
    most_states: usize,
    states: usize,
    clock: u64,
}

/// What is known of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Pages up to the state.
    pub pages: Vec<u32>,
    /// The state after them.
    pub state: Option<u32>,
    /// Pages that are known at all, a state behind them or not.
    pub known: usize,
}

impl PrefixCache {
    pub fn new(most_pages: usize, most_states: usize) -> PrefixCache {
        PrefixCache {
            chain: chained,
            blocks: HashMap::new(),
            // Without states nothing can be found again, without pages neither.
            most_pages: if most_states == 0 { 0 } else { most_pages },
            most_states,
            states: 0,
            clock: 0,
        }
    }

    pub fn enabled(&self) -> bool {
        self.most_pages > 0
    }

    /// Extends the keys of a text to all of its full pages.
    pub fn keys(&self, keys: &mut Vec<Key>, text: &[u32], page_size: usize) {
        if self.enabled() {
            for page in text.chunks_exact(page_size).skip(keys.len()) {
                keys.push((self.chain)(keys.last(), page));
            }
        }
    }

    /// The longest known prefix, and counts it as used.
    pub fn find(&mut self, keys: &[Key]) -> Found {
        self.clock += 1;
        let mut found = Found::default();
        let mut pages = Vec::new();
        for key in keys {
            let Some(block) = self.blocks.get_mut(key) else {
                break;
            };
            block.used = self.clock;
            pages.push(block.page);
            if block.state.is_some() {
                found.pages.clone_from(&pages);
                found.state = block.state;
            }
        }
        found.known = pages.len();
        found
    }

    /// Takes a page in, as one holder more. The page that has this content already, if there is one.
    pub fn insert(
        &mut self,
        key: Key,
        before: Option<Key>,
        page: u32,
        pages: &mut Pool,
        slots: &mut Pool,
    ) -> Inserted {
        self.clock += 1;
        if let Some(block) = self.blocks.get_mut(&key) {
            block.used = self.clock;
            return Inserted::Known(block.page);
        }
        let chained = before.is_none_or(|b| self.blocks.contains_key(&b));
        if !chained
            || self.blocks.len() >= self.most_pages && !self.drop_other(before, pages, slots)
        {
            return Inserted::Refused;
        }
        if let Some(before) = before.and_then(|b| self.blocks.get_mut(&b)) {
            before.after += 1;
            before.used = self.clock;
        }
        pages.share(page);
        let used = self.clock;
        self.blocks.insert(
            key,
            Block {
                before,
                page,
                state: None,
                after: 0,
                used,
            },
        );
        Inserted::New
    }

    fn drop_other(&mut self, keep: Option<Key>, pages: &mut Pool, slots: &mut Pool) -> bool {
        let last = |(key, block): &(&Key, &Block)| block.after == 0 && Some(**key) != keep;
        let oldest = self.blocks.iter().filter(last).min_by_key(|(_, b)| b.used);
        let Some(key) = oldest.map(|(key, _)| *key) else {
            return false;
        };
        self.remove(key, pages, slots);
        true
    }

    /// Keeps the state after a page, as one holder more of its slot.
    pub fn keep(&mut self, key: &Key, slot: u32, slots: &mut Pool) -> bool {
        match self.blocks.get(key) {
            Some(block) if block.state.is_none() => {}
            _ => return false,
        }
        if self.states >= self.most_states && !self.drop_state(slots) {
            return false;
        }
        slots.share(slot);
        self.states += 1;
        if let Some(block) = self.blocks.get_mut(key) {
            block.state = Some(slot);
        }
        true
    }

    /// Forgets the state after a page.
    pub fn forget(&mut self, key: &Key, slots: &mut Pool) {
        if let Some(slot) = self.blocks.get_mut(key).and_then(|b| b.state.take()) {
            slots.release(slot);
            self.states -= 1;
        }
    }

    /// Gives up the state that was used longest ago, preferring those that this makes free.
    pub fn drop_state(&mut self, slots: &mut Pool) -> bool {
        let kept = self
            .blocks
            .iter()
            .filter_map(|(key, b)| b.state.map(|slot| (key, b.used, slot)));
        let oldest = kept.min_by_key(|(_, used, slot)| (slots.holders(*slot) > 1, *used));
        let Some(key) = oldest.map(|(key, ..)| *key) else {
            return false;
        };
        self.forget(&key, slots);
        true
    }

    /// Gives up the page that was used longest ago, preferring those that this makes free.
    pub fn drop_page(&mut self, pages: &mut Pool, slots: &mut Pool) -> bool {
        let last = self.blocks.iter().filter(|(_, b)| b.after == 0);
        // One that a sequence holds too may stand behind one that nobody else does.
        let oldest = last.min_by_key(|(_, b)| (pages.holders(b.page) > 1, b.used));
        let Some(key) = oldest.map(|(key, _)| *key) else {
            return false;
        };
        self.remove(key, pages, slots);
        true
    }

    fn remove(&mut self, key: Key, pages: &mut Pool, slots: &mut Pool) {
        self.forget(&key, slots);
        let Some(block) = self.blocks.remove(&key) else {
            return;
        };
        pages.release(block.page);
        if let Some(before) = block.before.and_then(|b| self.blocks.get_mut(&b)) {
            before.after -= 1;
        }
    }

    /// Pages that only the cache holds.
    pub fn idle_pages(&self, pages: &Pool) -> usize {
        let blocks = self.blocks.values();
        blocks.filter(|b| pages.holders(b.page) == 1).count()
    }

    /// Slots that only the cache holds.
    pub fn idle_slots(&self, slots: &Pool) -> usize {
        let states = self.blocks.values().filter_map(|b| b.state);
        states.filter(|slot| slots.holders(*slot) == 1).count()
    }

    /// Pages and slots that it holds, for the books.
    #[cfg(test)]
    pub fn held(&self) -> (Vec<u32>, Vec<u32>) {
        let pages = self.blocks.values().map(|b| b.page).collect();
        (
            pages,
            self.blocks.values().filter_map(|b| b.state).collect(),
        )
    }

    /// Forgets everything.
    #[cfg(test)]
    pub fn clear(&mut self, pages: &mut Pool, slots: &mut Pool) {
        while self.drop_other(None, pages, slots) {}
    }
}

/// What became of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inserted {
    New,
    /// This page has the same content.
    Known(u32),
    Refused,
}
