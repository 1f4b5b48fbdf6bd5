//! Threads that live as long as the backend and take jobs by number.
//!
//! Fast because a call is two stores and a wait: nothing is allocated, and threads that worked a
//! moment ago still watch for more, so that they start within a microsecond.
//!
//! Invariants: a call returns only after every thread has left it; a thread that comes too late finds
//! the call closed and touches nothing. A panic of a job is raised again by the call, after that.
//!
//! `unsafe` because threads that outlive a call run a closure that does not.

#![allow(unsafe_code)]

use std::any::Any;
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle, yield_now};

/// Looks for a new call before a thread offers its core to others: some 50 µs.
const SPINS: usize = 1 << 12;

/// Offers before it goes to sleep.
const YIELDS: usize = 1 << 6;

/// What a call runs: number of the thread, number of the job.
type Run<'a> = dyn Fn(usize, usize) + Sync + 'a;

struct Call {
    run: *const Run<'static>,
    count: usize,
}

struct Board {
    /// Counts calls opened and closed: odd while one is open.
    epoch: AtomicUsize,
    call: UnsafeCell<Option<Call>>,
    /// The next job of the call.
    next: AtomicUsize,
    /// Threads that may be looking at `call`.
    active: AtomicUsize,
    stop: AtomicBool,
    /// Threads that sleep, and what wakes them.
    sleeping: Mutex<usize>,
    wake: Condvar,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: `call` is written only by the thread that holds `Crew::turn`, while the epoch is even and
// nobody is active, and read only by threads that are active in an open epoch.
unsafe impl Sync for Board {}
// SAFETY: the pointer in `call` is to a closure that is `Sync`.
unsafe impl Send for Board {}

/// The threads besides the one that calls.
pub struct Crew {
    board: Arc<Board>,
    /// Held by whoever has a call open.
    turn: Mutex<()>,
    threads: Vec<JoinHandle<()>>,
}

impl Crew {
    /// As many threads as the system grants, up to `threads`.
    pub fn new(threads: usize) -> Crew {
        let board = Arc::new(Board {
            epoch: AtomicUsize::new(0),
            call: UnsafeCell::new(None),
            next: AtomicUsize::new(0),
            active: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            sleeping: Mutex::new(0),
            wake: Condvar::new(),
            panic: Mutex::new(None),
        });
        let start = |i: usize| {
            let board = Arc::clone(&board);
            let builder = Builder::new().name(format!("layerlet-{i}"));
            builder.spawn(move || board.serve(i + 1)).ok()
        };
        Crew {
            threads: (0..threads).map_while(start).collect(),
            board,
            turn: Mutex::new(()),
        }
    }

    /// Threads besides the caller's.
    pub fn len(&self) -> usize {
        self.threads.len()
    }

    /// Runs every job, each once, on all threads. `scratch` has one entry for each of them, the
    /// caller's first.
    pub fn each<J: Send, S: Send>(
        &self,
        jobs: &mut [J],
        scratch: &mut [S],
        run: &(impl Fn(&mut J, &mut S) + Sync),
    ) {
        assert!(scratch.len() > self.len());
        let count = jobs.len();
        let (jobs, scratch) = (Shared::of(jobs), Shared::of(scratch));
        self.run(count, &|thread, job| {
            // SAFETY: `run` hands out every number below `count` once, and runs one job at a time
            // under the number of a thread, which is at most `len`.
            let (job, scratch) = unsafe { (jobs.at(job), scratch.at(thread)) };
            run(job, scratch);
        });
    }

    /// Runs `run(_, 0)` to `run(_, count - 1)`, each once, on all threads. A call from within a job,
    /// or while another thread has a call open, runs on its own thread alone.
    fn run(&self, count: usize, run: &Run<'_>) {
        let turn = self.turn.try_lock();
        let (Ok(_turn), false) = (&turn, count < 2 || self.threads.is_empty()) else {
            return (0..count).for_each(|job| run(0, job));
        };
        // SAFETY: only the lifetime changes, and `Open` keeps this frame alive until no thread can
        // reach the closure any more, also when a job panics.
        let run: *const Run<'static> = unsafe { std::mem::transmute(run as *const Run<'_>) };
        let open = Open::new(&self.board, Call { run, count });
        open.board.work(0);
        drop(open);
        let panic = lock(&self.board.panic).take();
        if let Some(panic) = panic {
            drop(turn);
            resume_unwind(panic);
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.board.stop.store(true, SeqCst);
        let sleeping = lock(&self.board.sleeping);
        self.board.wake.notify_all();
        drop(sleeping);
        for thread in self.threads.drain(..) {
            // A thread of the crew cannot panic: jobs are caught.
            let _ = thread.join();
        }
    }
}

/// An open call; closing waits for every thread to leave it.
struct Open<'a> {
    board: &'a Board,
}

impl<'a> Open<'a> {
    fn new(board: &'a Board, call: Call) -> Open<'a> {
        // SAFETY: the caller holds the turn, the last call was closed, so no thread reads `call`.
        unsafe { *board.call.get() = Some(call) };
        board.next.store(0, SeqCst);
        board.epoch.fetch_add(1, SeqCst);
        if *lock(&board.sleeping) > 0 {
            board.wake.notify_all();
        }
        Open { board }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.board.epoch.fetch_add(1, SeqCst);
        let mut spins = 0;
        while self.board.active.load(SeqCst) != 0 {
            relax(&mut spins);
        }
    }
}

impl Board {
    /// Life of a thread.
    fn serve(&self, thread: usize) {
        let mut seen = 0;
        while let Some(epoch) = self.wait_for_call(seen) {
            seen = epoch;
            self.active.fetch_add(1, SeqCst);
            // Open now, after this thread became visible: the call cannot end before it leaves.
            let epoch = self.epoch.load(SeqCst);
            if epoch % 2 == 1 {
                seen = epoch;
                self.work(thread);
            }
            self.active.fetch_sub(1, SeqCst);
        }
    }

    /// Jobs of the open call until none is left.
    fn work(&self, thread: usize) {
        // SAFETY: the call is open and this thread is active in it (or is the one that opened it).
        let Some(call) = (unsafe { &*self.call.get() }) else {
            return;
        };
        loop {
            let job = self.next.fetch_add(1, SeqCst);
            if job >= call.count {
                return;
            }
            // SAFETY: the closure lives until the call is closed and this thread has left it.
            let run = unsafe { &*call.run };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(thread, job))) {
                lock(&self.panic).get_or_insert(panic);
            }
        }
    }

    /// The number of an open call later than `seen`; `None` at the end of the backend.
    fn wait_for_call(&self, seen: usize) -> Option<usize> {
        let is_new = |epoch: usize| epoch % 2 == 1 && epoch != seen;
        for spins in 0..SPINS + YIELDS {
            let epoch = self.epoch.load(SeqCst);
            if self.stop.load(SeqCst) {
                return None;
            }
            if is_new(epoch) {
                return Some(epoch);
            }
            relax(&mut { spins });
        }
        let mut sleeping = lock(&self.sleeping);
        *sleeping += 1;
        loop {
            let epoch = self.epoch.load(SeqCst);
            let stop = self.stop.load(SeqCst);
            if stop || is_new(epoch) {
                *sleeping -= 1;
                return (!stop).then_some(epoch);
            }
            sleeping = self
                .wake
                .wait(sleeping)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A slice whose elements several threads take, each a different one.
struct Shared<'a, T> {
    first: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: it hands out `&mut T` to other threads, no two of the same element.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    fn of(slice: &'a mut [T]) -> Self {
        Shared {
            first: slice.as_mut_ptr(),
            len: slice.len(),
            slice: PhantomData,
        }
    }

    /// # Safety
    ///
    /// While the reference lives, nobody else may ask for the same element.
    #[allow(clippy::mut_from_ref)]
    unsafe fn at(&self, index: usize) -> &mut T {
        assert!(index < self.len);
        // SAFETY: within the slice, and nobody else has it, which the caller vouches for.
        unsafe { &mut *self.first.add(index) }
    }
}

/// Burns a moment; offers the core to others once it has taken too long.
fn relax(spins: &mut usize) {
    *spins += 1;
    match *spins < SPINS {
        true => spin_loop(),
        false => yield_now(),
    }
}

/// Nothing is held over a panic that could leave these half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn every_job_runs_once_however_often_one_calls() {
        let crew = Crew::new(3);
        for count in (0..40).cycle().take(4000) {
            let runs: Vec<AtomicU32> = (0..count).map(|_| AtomicU32::new(0)).collect();
            crew.run(count, &|_, i| {
                runs[i].fetch_add(1, SeqCst);
            });
            assert!(runs.iter().all(|n| n.load(SeqCst) == 1));
        }
    }

    #[test]
    fn jobs_and_scratch_are_nobody_elses() {
        let crew = Crew::new(3);
        for _ in 0..200 {
            let mut jobs: Vec<usize> = (0..97).collect();
            let mut scratch = vec![(0, 0); 4];
            crew.each(&mut jobs, &mut scratch, &|job, (count, sum)| {
                *count += 1;
                *sum += *job;
                *job += 1;
            });
            assert_eq!(jobs, (1..98).collect::<Vec<_>>());
            let total = scratch.iter().fold((0, 0), |t, s| (t.0 + s.0, t.1 + s.1));
            assert_eq!(total, (97, 96 * 97 / 2));
        }
    }

    #[test]
    fn sleepers_wake() {
        let crew = Crew::new(2);
        for _ in 0..5 {
            std::thread::sleep(std::time::Duration::from_millis(20));
            let threads = Mutex::new(std::collections::HashSet::new());
            crew.run(64, &|_, _| {
                std::thread::sleep(std::time::Duration::from_millis(1));
                lock(&threads).insert(std::thread::current().id());
            });
            assert!(lock(&threads).len() > 1, "only the caller worked");
        }
    }

    #[test]
    fn a_panic_of_a_job_reaches_the_caller_and_the_crew_goes_on() {
        let crew = Crew::new(2);
        let failing = catch_unwind(AssertUnwindSafe(|| {
            crew.run(50, &|_, i| assert!(i != 17, "job seventeen"));
        }));
        let message = failing.unwrap_err();
        assert!(
            message
                .downcast_ref::<&str>()
                .is_some_and(|m| m.contains("job seventeen"))
        );
        let sum = AtomicUsize::new(0);
        crew.run(50, &|_, i| {
            sum.fetch_add(i, SeqCst);
        });
        assert_eq!(sum.load(SeqCst), 49 * 50 / 2);
    }

    #[test]
    fn calls_within_jobs_and_from_several_threads_are_served() {
        let crew = Crew::new(2);
        let sum = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        crew.run(4, &|_, _| {
                            crew.run(4, &|_, i| {
                                sum.fetch_add(i, SeqCst);
                            })
                        });
                    }
                });
            }
        });
        assert_eq!(sum.load(SeqCst), 3 * 50 * 4 * 6);
    }
}
