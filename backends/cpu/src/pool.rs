//! All cores, without a bit depending on how many there are: work is split by outputs only, each
//! output is computed by one thread from start to end.

use rayon::ThreadPoolBuilder;
use rayon::prelude::*;
use std::sync::Arc;

/// Multiply-adds below which waking other threads costs more than it saves: about 150 µs of work,
/// where a wake was measured at 50 µs.
pub const INLINE_BELOW: usize = 1 << 20;

/// Jobs per thread: enough to even out jobs of unequal length.
const JOBS_PER_THREAD: usize = 4;

/// The threads of a backend; instances share them.
#[derive(Clone)]
pub struct Pool {
    /// `None`: everything runs on the calling thread.
    threads: Option<Arc<rayon::ThreadPool>>,
    /// Launches of fewer multiply-adds stay on the calling thread.
    pub inline_below: usize,
}

impl Pool {
    /// A pool of `threads` threads; falls back to the calling thread where none can be started.
    pub fn new(threads: usize) -> Pool {
        let build = || {
            ThreadPoolBuilder::new()
                .num_threads(threads)
                .thread_name(|i| format!("layerlet-{i}"))
                .build()
        };
        Pool {
            threads: (threads > 1).then(build).and_then(Result::ok).map(Arc::new),
            inline_below: INLINE_BELOW,
        }
    }

    /// The threads that a launch of this many multiply-adds is worth.
    pub fn threads_for(&self, work: usize) -> usize {
        match &self.threads {
            Some(pool) if work >= self.inline_below => pool.current_num_threads(),
            _ => 1,
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
        match &self.threads {
            Some(pool) if jobs.len() > 1 && self.threads_for(work) > 1 => {
                pool.install(|| jobs.into_par_iter().with_max_len(1).map(&run).collect())
            }
            _ => jobs.into_iter().map(run).collect(),
        }
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
