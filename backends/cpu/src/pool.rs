//! All cores, without a bit depending on how many there are: work is split by outputs only, each
//! output is computed by one thread from start to end.

mod crew;

use crate::arena::{self, Bump};
use crate::level::Level;
use crew::Crew;
use std::sync::Arc;

/// Multiply-adds below which sharing a launch costs more than it saves.
pub const INLINE_BELOW: usize = 1 << 16;

/// Jobs per thread: enough to even out jobs of unequal length, and threads that are called away.
const JOBS_PER_THREAD: usize = 8;

/// The threads of a backend and the instructions that they use.
#[derive(Clone)]
pub struct Threads {
    crew: Arc<Crew>,
    /// What kernels are compiled with.
    pub level: Level,
    /// Launches of fewer multiply-adds stay on the calling thread.
    pub inline_below: usize,
}

impl Threads {
    /// So many threads, the calling one among them; fewer where the system grants no more.
    pub fn new(threads: usize, level: Level) -> Threads {
        Threads {
            crew: Arc::new(Crew::new(threads.saturating_sub(1))),
            level,
            inline_below: INLINE_BELOW,
        }
    }
}

/// What launches of one instance run on: the threads of the backend, and memory of its own.
pub struct Pool {
    threads: Threads,
    /// What kernels are compiled with.
    pub level: Level,
    arena: Bump,
}

impl Pool {
    /// With an empty arena.
    pub fn new(threads: Threads) -> Pool {
        Pool {
            level: threads.level,
            threads,
            arena: Bump::new(),
        }
    }

    /// Forgets everything in the arena, before a launch.
    pub fn reset(&mut self) {
        self.arena.reset();
    }

    /// Memory until the end of the launch.
    pub fn arena(&self) -> &Bump {
        &self.arena
    }

    /// The threads that a launch of this many multiply-adds is worth.
    pub fn threads_for(&self, work: usize) -> usize {
        match work >= self.threads.inline_below {
            true => 1 + self.threads.crew.len(),
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

    /// A list that lives until the end of the launch.
    pub fn list<T>(&self, items: impl IntoIterator<Item = T>) -> &mut [T] {
        arena::list(&self.arena, items)
    }

    /// Runs every job.
    pub fn each<J: Send>(&self, work: usize, jobs: &mut [J], run: impl Fn(&mut J) + Sync) {
        self.each_with(work, jobs, || (), |job, ()| run(job));
    }

    /// Runs every job with something that its thread has to itself.
    pub fn each_with<J: Send, S: Send>(
        &self,
        work: usize,
        jobs: &mut [J],
        mut scratch: impl FnMut() -> S,
        run: impl Fn(&mut J, &mut S) + Sync,
    ) {
        let threads = self.threads_for(work).min(jobs.len());
        if threads < 2 {
            let mut scratch = scratch();
            return jobs.iter_mut().for_each(|job| run(job, &mut scratch));
        }
        let scratch = self.list((0..=self.threads.crew.len()).map(|_| scratch()));
        self.threads.crew.each(jobs, scratch, &run);
    }

    /// Runs `run` on every row of `out`, whose rows are `width` long; `work` multiply-adds a row.
    pub fn rows<T: Send>(
        &self,
        work: usize,
        out: &mut [T],
        width: usize,
        run: impl Fn(usize, &mut [T]) + Sync,
    ) {
        self.rows_with(work, out, width, || (), |row, out, ()| run(row, out));
    }

    /// The same, with something that each thread has to itself.
    pub fn rows_with<T: Send, S: Send>(
        &self,
        work: usize,
        out: &mut [T],
        width: usize,
        scratch: impl FnMut() -> S,
        run: impl Fn(usize, &mut [T], &mut S) + Sync,
    ) {
        if out.is_empty() {
            return;
        }
        let rows = out.len() / width;
        let total = work.saturating_mul(rows);
        let block = rows.div_ceil(self.jobs_for(total));
        let jobs = self.list(out.chunks_mut(block * width).enumerate());
        self.each_with(total, jobs, scratch, |(b, out), scratch| {
            for (i, row) in out.chunks_exact_mut(width).enumerate() {
                run(*b * block + i, row, scratch);
            }
        });
    }
}
