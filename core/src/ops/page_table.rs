//! Where a sequence's positions lie in the KV pages.
//!
//! Position `p` of sequence `s` is row `p % page_size` of page `page_table[s, p / page_size]`. Pages
//! may lie anywhere and several sequences may read the same ones; only the logical position enters
//! the arithmetic, so neither page size nor layout can change a byte.

use crate::NONE;
use crate::launch::LaunchError;
use alloc::format;

/// The page table of a step over caches of `pages` pages.
#[derive(Clone, Copy, Debug)]
pub struct PageTable<'a> {
    /// The operation that looks, for its errors.
    pub op: &'static str,
    /// u32 `[S, pages_per_sequence]`
    pub table: &'a [u32],
    /// Number of sequences, `S`.
    pub sequences: usize,
    /// Columns of the table.
    pub pages_per_sequence: usize,
    /// Positions in a page.
    pub page_size: usize,
    /// Pages in the caches.
    pub pages: usize,
}

impl PageTable<'_> {
    /// The sequence of a row, `None` for an inert row.
    pub fn sequence(&self, row: usize, row_seq: u32) -> Result<Option<usize>, LaunchError> {
        match row_seq {
            NONE => Ok(None),
            seq if (seq as usize) < self.sequences => Ok(Some(seq as usize)),
            seq => Err(LaunchError::step_data(
                self.op,
                format!("sequence of row {row}"),
                seq,
                format!("below the {} sequences, or NONE", self.sequences),
            )),
        }
    }

    /// The cache row (page times page size, plus offset) of a position.
    pub fn cache_row(&self, sequence: usize, position: u32) -> Result<usize, LaunchError> {
        let index = position as usize / self.page_size;
        if index >= self.pages_per_sequence {
            return Err(LaunchError::step_data(
                self.op,
                format!("position in sequence {sequence}"),
                position,
                format!(
                    "below {}, the end of its {} pages of {}",
                    self.pages_per_sequence.saturating_mul(self.page_size),
                    self.pages_per_sequence,
                    self.page_size
                ),
            ));
        }
        let page = self.table[sequence * self.pages_per_sequence + index];
        if page as usize >= self.pages {
            return Err(LaunchError::step_data(
                self.op,
                format!("page {index} of sequence {sequence}"),
                page,
                format!("below the {} pages", self.pages),
            ));
        }
        Ok(page as usize * self.page_size + position as usize % self.page_size)
    }
}
