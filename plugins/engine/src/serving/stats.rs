//! What the engine did and holds.

/// Gauges of this moment, and counters since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests that hold state.
    pub running: usize,
    /// Requests that wait, the preempted ones among them.
    pub waiting: usize,
    /// Pages that running requests hold.
    pub kv_pages_used: usize,
    /// Pages that only the prefix cache holds: free for who needs them.
    pub kv_pages_cached: usize,
    /// All pages.
    pub kv_pages_total: usize,
    /// Slots that running requests hold.
    pub slots_used: usize,
    /// Slots that only the prefix cache holds.
    pub slots_cached: usize,
    /// All slots.
    pub slots_total: usize,
    /// Tokens of prompts that were looked for in the prefix cache.
    pub cache_queried_tokens: u64,
    /// Of these, found.
    pub cache_hit_tokens: u64,
    /// Tokens of prompts of admitted requests.
    pub prompt_tokens: u64,
    /// Tokens reported.
    pub generated_tokens: u64,
    /// Requests that gave up their state for others, to go on later.
    pub preemptions: u64,
    /// Steps run.
    pub steps: u64,
    /// Draws: steps of a sequence that gave it tokens.
    pub draws: u64,
    /// Drafts fed, by their position after the last token.
    pub drafted: Vec<u64>,
    /// Drafts accepted, by position.
    pub accepted: Vec<u64>,
    /// Requests that came to their end.
    pub finished: u64,
    /// Requests whose caller hung up.
    pub cancelled: u64,
    /// Requests that failed.
    pub failed: u64,
}

impl Stats {
    /// Tokens that a draw gave, on average; none before the first.
    pub fn tokens_per_step(&self) -> Option<f64> {
        let accepted: u64 = self.accepted.iter().sum();
        (self.draws > 0).then(|| (self.draws + accepted) as f64 / self.draws as f64)
    }
}
