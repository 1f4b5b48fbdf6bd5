//! Who holds which page and slot, counted again from the holders.

use crate::serving::Batch;
use crate::serving::pool::Pool;

/// Why the books do not balance.
pub fn audit(batch: &Batch) -> Result<(), String> {
    let (cached_pages, cached_slots) = batch.cache.held();
    let running = || batch.running.iter();
    let pages = running().flat_map(|s| s.pages.iter().copied());
    let slots = running().filter_map(|s| s.slot);
    compare("page", &batch.pages, pages.chain(cached_pages))?;
    compare("slot", &batch.slots, slots.chain(cached_slots))
}

fn compare(what: &str, pool: &Pool, held: impl Iterator<Item = u32>) -> Result<(), String> {
    let mut holders = vec![0; pool.size()];
    held.for_each(|index| holders[index as usize] += 1);
    for (index, holders) in (0u32..).zip(&holders) {
        if pool.holders(index) != *holders {
            let counted = pool.holders(index);
            return Err(format!(
                "{what} {index} counts {counted} holders and has {holders}"
            ));
        }
    }
    let free = holders.iter().filter(|n| **n == 0).count();
    match free == pool.free() {
        true => Ok(()),
        false => Err(format!(
            "{free} {what}s have no holder, {} are free",
            pool.free()
        )),
    }
}

/// Nothing runs: whatever is held, the cache holds, and gives back.
pub fn all_given_back(batch: &mut Batch) -> Result<(), String> {
    audit(batch)?;
    batch.cache.clear(&mut batch.pages, &mut batch.slots);
    let (pages, slots) = (&batch.pages, &batch.slots);
    match (pages.size() - pages.free(), slots.size() - slots.free()) {
        (0, 0) => Ok(()),
        (pages, slots) => Err(format!("{pages} pages and {slots} slots are lost")),
    }
}
