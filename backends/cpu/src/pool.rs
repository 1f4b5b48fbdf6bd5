//! All cores, without a bit depending on how many there are: work is split by outputs only, each
//! output is computed by one thread from start to end.

mod crew;

use crate::level::Level;
use crew::Crew;
use std::sync::{Arc, Mutex, PoisonError};

/// Multiply-adds below which sharing a launch costs more than it saves.
pub const INLINE_BELOW: usize = 1 << 16;

/// Jobs per thread: enough to even out jobs of unequal length.
const JOBS_PER_THREAD: usize = 4;

/// The threads of a backend, and the instructions that they use; instances share them.
#[derive(Clone)]
pub struct Pool {
    crew: Arc<Crew>,
    /// What kernels are compiled with.
    pub level: Level,
    /// Launches of fewer multiply-adds stay on the calling thread.
    pub inline_below: usize,
}

impl Pool {
    /// A pool of `threads` threads, the calling one among them; fewer where the system grants no more.
    pub fn new(threads: usize, level: Level) -> Pool {
        Pool {
            crew: Arc::new(Crew::new(threads.saturating_sub(1))),
            level,
            inline_below: INLINE_BELOW,
        }
    }

    /// The threads that a launch of this many multiply-adds is worth.
    pub fn threads_for(&self, work: usize) -> usize {
        match work >= self.inline_below {
            true => 1 + self.crew.len(),
            false => 1,
        }
    }

    /// Into how many jobs to cut a launch of this many multiply-adds.
    pub fn jobs_for(&self, work: usize) -> usize {
        match self.threads_for(work) {
            1 => 1,
            n => n * JOBS_PER_THREAD,
        }
    }

    /// Runs every job and returns the results in the order of the jobs.
    pub fn map<J, R>(&self, work: usize, jobs: Vec<J>, run: impl Fn(J) -> R + Sync) -> Vec<R>
    where
        J: Send,
        R: Send,
    {
        if jobs.len() < 2 || self.threads_for(work) == 1 {
            return jobs.into_iter().map(run).collect();
        }
        // A job is taken by one thread, which leaves its result in the job's place.
        let places: Vec<_> = jobs
            .into_iter()
            .map(|job| Mutex::new((Some(job), None)))
            .collect();
        self.crew.run(places.len(), &|i| {
            let mut place = places[i].lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(job) = place.0.take() {
                place.1 = Some(run(job));
            }
        });
        let results = places.into_iter().filter_map(|place| {
            let place = place.into_inner();
            place.unwrap_or_else(PoisonError::into_inner).1
        });
        results.collect()
    }

    /// Runs every job.
    pub fn each<J: Send>(&self, work: usize, jobs: Vec<J>, run: impl Fn(J) + Sync) {
        self.map(work, jobs, run);
    }

    /// Runs `run` on every row of `out`, whose rows are `width` long; `work` multiply-adds a row.
    pub fn rows<T: Send>(
        &self,
        work: usize,
        out: &mut [T],
        width: usize,
        run: impl Fn(usize, &mut [T]) + Sync,
    ) {
        if out.is_empty() {
            return;
        }
        let rows = out.len() / width;
        let total = work.saturating_mul(rows);
        let block = rows.div_ceil(self.jobs_for(total));
        let jobs: Vec<_> = out.chunks_mut(block * width).enumerate().collect();
        self.each(total, jobs, |(b, out)| {
            for (i, row) in out.chunks_exact_mut(width).enumerate() {
                run(b * block + i, row);
            }
        });
    }
}
