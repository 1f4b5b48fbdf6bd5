//! Requests that wait: a bounded queue, shared evenly between clients.
//!
//! Every client has a count of the tokens that were fed and drawn for it; the next request is the oldest one of the client
//! with the least. A client that comes, or comes back, starts at the least count of those that are there: nobody saves up
//! by staying away. (The virtual token counter of Sheng et al., *Fairness in Serving Large Language Models*, 2024.)

use super::sequence::Sequence;
use std::collections::{HashMap, VecDeque};

/// What waits, by client.
#[derive(Default)]
pub struct Waiting {
    clients: HashMap<String, Client>,
    arrivals: u64,
}

#[derive(Default)]
struct Client {
    queue: VecDeque<(u64, Sequence)>,
    served: u64,
    /// Requests that have left the queue and not ended.
    active: usize,
}

impl Waiting {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.clients.values().map(|c| c.queue.len()).sum()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.clients.values().all(|c| c.queue.is_empty())
    }

    pub(super) fn push(&mut self, sequence: Sequence) {
        let least = self.clients.values().map(|c| c.served).min().unwrap_or(0);
        let name = sequence.request.client.clone();
        let client = self.clients.entry(name).or_insert_with(|| Client {
            served: least,
            ..Client::default()
        });
        client.queue.push_back((self.arrivals, sequence));
        self.arrivals += 1;
    }

    fn next_client(&mut self) -> Option<&mut Client> {
        let waiting = self.clients.values_mut().filter(|c| !c.queue.is_empty());
        waiting.min_by_key(|c| (c.served, c.queue[0].0))
    }

    /// The one whose turn it is.
    pub(super) fn peek(&mut self) -> Option<&Sequence> {
        self.next_client().map(|c| &c.queue[0].1)
    }

    /// Takes it out; its client stays until [`Waiting::ended`].
    pub(super) fn pop(&mut self) -> Option<Sequence> {
        let client = self.next_client()?;
        client.active += 1;
        client.queue.pop_front().map(|(_, sequence)| sequence)
    }

    pub(super) fn charge(&mut self, client: &str, tokens: u64) {
        if let Some(client) = self.clients.get_mut(client) {
            client.served += tokens;
        }
    }

    pub(super) fn ended(&mut self, client: &str) {
        if let Some(client) = self.clients.get_mut(client) {
            client.active -= 1;
        }
        self.forget();
    }

    /// Drops requests whose callers have gone; how many.
    pub(super) fn sweep(&mut self) -> usize {
        let before = self.len();
        for client in self.clients.values_mut() {
            client.queue.retain(|(_, sequence)| !sequence.cancelled());
        }
        self.forget();
        before - self.len()
    }

    /// All that wait.
    pub(super) fn drain(&mut self) -> Vec<Sequence> {
        let queues = self.clients.values_mut().flat_map(|c| c.queue.drain(..));
        let all = queues.map(|(_, sequence)| sequence).collect();
        self.forget();
        all
    }

    fn forget(&mut self) {
        self.clients
            .retain(|_, c| c.active > 0 || !c.queue.is_empty());
    }
}
