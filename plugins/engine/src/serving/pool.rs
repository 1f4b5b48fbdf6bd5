//! Pages, or slots, by number of holders.
//!
//! Invariants: an index is free exactly when nobody holds it; who takes one holds it alone.

/// Indices `0..size`, each with its holders.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    free: Vec<u32>,
    holders: Vec<u32>,
}

impl Pool {
    pub fn new(size: usize) -> Pool {
        Pool {
            free: (0..size as u32).rev().collect(),
            holders: vec![0; size],
        }
    }

    /// An index that nobody holds.
    pub fn take(&mut self) -> Option<u32> {
        let index = self.free.pop()?;
        self.holders[index as usize] = 1;
        Some(index)
    }

    /// One holder more.
    pub fn share(&mut self, index: u32) {
        debug_assert!(self.holders[index as usize] > 0, "{index} is free");
        self.holders[index as usize] += 1;
    }

    /// One holder less.
    pub fn release(&mut self, index: u32) {
        let holders = &mut self.holders[index as usize];
        *holders = holders.checked_sub(1).expect("a holder releases it");
        if *holders == 0 {
            self.free.push(index);
        }
    }

    pub fn holders(&self, index: u32) -> u32 {
        self.holders[index as usize]
    }

    pub fn free(&self) -> usize {
        self.free.len()
    }

    pub fn size(&self) -> usize {
        self.holders.len()
    }
}
