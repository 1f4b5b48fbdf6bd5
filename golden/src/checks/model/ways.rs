//! Ways of taking texts through a model, which must all end in the same bytes.

use crate::generate::Source;
use crate::small_model::SLOTS;

/// Rows of one sequence in one step.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// Which text.
    pub sequence: usize,
    /// How many of its tokens.
    pub rows: usize,
    /// Wrong tokens behind them, as drafts that are not accepted.
    pub rejected: usize,
    /// Where the state after the last right row goes.
    pub slot: u32,
    /// Where the state after the last wrong row goes.
    pub thrown: u32,
}

/// Everything that must not matter.
#[derive(Clone, Debug)]
pub struct Way {
    /// Steps in order.
    pub steps: Vec<Vec<Chunk>>,
    /// Positions of a page.
    pub page_size: usize,
    /// Pages of each sequence, by logical order.
    pub pages: Vec<Vec<u32>>,
    /// Rows, sequences and outputs that a step leaves empty.
    pub spare: usize,
    /// One plan for all steps, as large as the largest needs; or one for each size.
    pub bucket: bool,
    /// State holds something else before.
    pub fouled: bool,
    /// Runs all texts twice over the same memory; the second run counts.
    pub again: bool,
    /// Tokens are drawn, with penalties, instead of the greedy ones. This does matter.
    pub sampled: bool,
}

/// What a family of ways varies; the rest is as plain as can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vary {
    /// How a prompt is cut, one sequence after the other.
    Split,
    /// Which sequences share a step, and in which order.
    Company,
    /// Page size, pages, slots, what they held, empty rows.
    Layout,
    /// Drafts that are not accepted.
    Drafts,
    /// The whole once more over the same memory.
    Repeated,
}

impl Vary {
    /// Name in the table.
    pub fn variant(self) -> &'static str {
        match self {
            Vary::Split => "any split",
            Vary::Company => "any company",
            Vary::Layout => "any slots and pages",
            Vary::Drafts => "rejected drafts",
            Vary::Repeated => "repeated",
        }
    }
}

/// Positions that drafts may reach behind a text.
pub const MARGIN: usize = 8;

/// Random numbers in order.
pub struct Draw {
    source: Source,
    next: u64,
}

impl Draw {
    /// The numbers of a seed and a name.
    pub fn new(seed: u64, name: &str) -> Draw {
        Draw {
            source: Source::new(seed, name),
            next: 0,
        }
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.next += 1;
        self.source.words(self.next)[0] as usize % n
    }

    /// One of these.
    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// `0..n` in random order.
    pub fn shuffled(&mut self, n: usize) -> Vec<u32> {
        let mut all: Vec<u32> = (0..n as u32).collect();
        for i in (1..n).rev() {
            all.swap(i, self.below(i + 1));
        }
        all
    }
}

/// Each text alone and at once.
pub fn plain(lengths: &[usize], sampled: bool) -> Way {
    let chunk = |(sequence, &rows)| Chunk {
        sequence,
        rows,
        rejected: 0,
        slot: sequence as u32,
        thrown: 0,
    };
    let page_size = 16;
    Way {
        steps: lengths
            .iter()
            .enumerate()
            .map(chunk)
            .map(|c| vec![c])
            .collect(),
        page_size,
        pages: pages(lengths, page_size, |total| (0..total as u32).collect()),
        spare: 0,
        bucket: false,
        fouled: false,
        again: false,
        sampled,
    }
}

/// Way number `n` of a family.
pub fn way(vary: Vary, lengths: &[usize], seed: u64, n: u64) -> Way {
    let mut draw = Draw::new(seed.wrapping_add(n), &format!("{vary:?}"));
    let mut way = plain(lengths, n % 2 == 1);
    match vary {
        // The finest split first: one token at a time.
        Vary::Split if n == 0 => way.steps = steps(lengths, &mut draw, Cut::Single, vary),
        Vary::Split | Vary::Company | Vary::Drafts => {
            way.steps = steps(lengths, &mut draw, Cut::Random, vary);
        }
        Vary::Repeated => way.again = true,
        Vary::Layout => {
            way.steps = steps(lengths, &mut draw, Cut::Random, vary);
            way.page_size = draw.of(&[1, 3, 16, 64, 100]);
            way.pages = pages(lengths, way.page_size, |total| draw.shuffled(total));
            way.spare = draw.below(4);
            way.fouled = true;
        }
    }
    way.bucket = n % 3 == 1;
    way
}

fn pages(
    lengths: &[usize],
    page_size: usize,
    order: impl FnOnce(usize) -> Vec<u32>,
) -> Vec<Vec<u32>> {
    let needed = |n: &usize| (n + MARGIN).div_ceil(page_size);
    let order = order(lengths.iter().map(needed).sum());
    let mut rest = order.as_slice();
    lengths
        .iter()
        .map(|n| {
            let (mine, others) = rest.split_at(needed(n));
            rest = others;
            mine.to_vec()
        })
        .collect()
}

#[derive(Clone, Copy)]
enum Cut {
    Single,
    Random,
}

fn steps(lengths: &[usize], draw: &mut Draw, cut: Cut, vary: Vary) -> Vec<Vec<Chunk>> {
    let mut done = vec![0; lengths.len()];
    let mut held: Vec<Option<u32>> = vec![None; lengths.len()];
    let mut steps = Vec::new();
    loop {
        let waiting: Vec<usize> = (0..lengths.len())
            .filter(|&s| done[s] < lengths[s])
            .collect();
        if waiting.is_empty() {
            return steps;
        }
        let members: Vec<usize> = match vary {
            Vary::Split | Vary::Repeated => vec![waiting[0]],
            Vary::Company | Vary::Layout | Vary::Drafts => {
                let count = 1 + draw.below(waiting.len());
                let order = draw.shuffled(waiting.len());
                order[..count]
                    .iter()
                    .map(|&i| waiting[i as usize])
                    .collect()
            }
        };
        let mut free = draw.shuffled(SLOTS);
        free.retain(|slot| !held.contains(&Some(*slot)));
        let mut step = Vec::new();
        for sequence in members {
            let left = lengths[sequence] - done[sequence];
            let rows = match cut {
                Cut::Single => 1,
                Cut::Random => draw.of(&[1, 1, 2, 5, 63, 64, left]).min(left),
            };
            let rejected = match vary {
                Vary::Drafts => draw.below(MARGIN),
                _ => 0,
            };
            let stays = held[sequence].filter(|_| draw.below(2) == 0);
            let mut take = || free.pop().unwrap_or_default();
            let slot = stays.unwrap_or_else(&mut take);
            step.push(Chunk {
                sequence,
                rows,
                rejected,
                slot,
                thrown: take(),
            });
            done[sequence] += rows;
            held[sequence] = Some(slot);
        }
        steps.push(step);
    }
}
