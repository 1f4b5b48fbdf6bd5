//! Independent checks on all cores; results come in the order of the checks.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Told how far a run is.
pub trait Progress: Sync {
    /// So many checks will run.
    fn total(&self, checks: usize);
    /// One of them starts.
    fn started(&self, name: &str);
    /// One of them has ended.
    fn finished(&self);
}

/// Runs `check` on every item.
pub fn map<T: Sync, R: Send>(items: &[T], check: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(items.len()));
    let work = || {
        while let Some((n, item)) = take(&next, items) {
            let result = check(item);
            let mut results = results.lock().unwrap_or_else(|e| e.into_inner());
            results.push((n, result));
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    let mut results = results.into_inner().unwrap_or_else(|e| e.into_inner());
    results.sort_by_key(|(n, _)| *n);
    results.into_iter().map(|(_, result)| result).collect()
}

fn take<'a, T>(next: &AtomicUsize, items: &'a [T]) -> Option<(usize, &'a T)> {
    let n = next.fetch_add(1, Ordering::Relaxed);
    Some((n, items.get(n)?))
}

#[cfg(test)]
mod tests {
    use super::map;
    use std::thread::sleep;
    use std::time::Duration;

    #[test]
    fn results_keep_the_order_of_the_items() {
        let items: Vec<u64> = (0..50).collect();
        let found = map(&items, |n| {
            // The first ones take longest.
            sleep(Duration::from_micros(20 * (50 - n)));
            *n
        });
        assert_eq!(found, items);
    }
}
