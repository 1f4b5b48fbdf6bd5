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
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle, yield_now};

/// Looks for a new call before a thread offers its core to others: some 50 µs.
const SPINS: usize = 1 << 12;

/// Offers before it goes to sleep.
const YIELDS: usize = 1 << 6;

type Run<'a> = dyn Fn(usize) + Sync + 'a;

struct Call {
    run: *const Run<'static>,
    count: usize,
}

struct Shared {
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
unsafe impl Sync for Shared {}
// SAFETY: the pointer in `call` is to a closure that is `Sync`.
unsafe impl Send for Shared {}

/// The threads besides the one that calls.
pub struct Crew {
    shared: Arc<Shared>,
    /// Held by whoever has a call open.
    turn: Mutex<()>,
    threads: Vec<JoinHandle<()>>,
}

impl Crew {
    /// As many threads as the system grants, up to `threads`.
    pub fn new(threads: usize) -> Crew {
        let shared = Arc::new(Shared {
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
            let shared = Arc::clone(&shared);
            let builder = Builder::new().name(format!("layerlet-{i}"));
            builder.spawn(move || shared.serve()).ok()
        };
        Crew {
            threads: (0..threads).map_while(start).collect(),
            shared,
            turn: Mutex::new(()),
        }
    }

    /// Threads besides the caller's.
    pub fn len(&self) -> usize {
        self.threads.len()
    }

    /// Runs `run(0)` to `run(count - 1)`, each once, on all threads. A call from within a job, or
    /// while another thread has a call open, runs on its own thread alone.
    pub fn run(&self, count: usize, run: &Run<'_>) {
        let turn = self.turn.try_lock();
        let (Ok(_turn), false) = (&turn, count < 2 || self.threads.is_empty()) else {
            return (0..count).for_each(run);
        };
        // SAFETY: only the lifetime changes, and `Open` keeps this frame alive until no thread can
        // reach the closure any more, also when a job panics.
        let run: *const Run<'static> = unsafe { std::mem::transmute(run as *const Run<'_>) };
        let open = Open::new(&self.shared, Call { run, count });
        open.shared.work();
        drop(open);
        let panic = lock(&self.shared.panic).take();
        if let Some(panic) = panic {
            drop(turn);
            resume_unwind(panic);
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
        let sleeping = lock(&self.shared.sleeping);
        self.shared.wake.notify_all();
        drop(sleeping);
        for thread in self.threads.drain(..) {
            // A thread of the crew cannot panic: jobs are caught.
            let _ = thread.join();
        }
    }
}

/// An open call; closing waits for every thread to leave it.
struct Open<'a> {
    shared: &'a Shared,
}

impl<'a> Open<'a> {
    fn new(shared: &'a Shared, call: Call) -> Open<'a> {
        // SAFETY: the caller holds the turn, the last call was closed, so no thread reads `call`.
        unsafe { *shared.call.get() = Some(call) };
        shared.next.store(0, SeqCst);
        shared.epoch.fetch_add(1, SeqCst);
        if *lock(&shared.sleeping) > 0 {
            shared.wake.notify_all();
        }
        Open { shared }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.shared.epoch.fetch_add(1, SeqCst);
        let mut spins = 0;
        while self.shared.active.load(SeqCst) != 0 {
            relax(&mut spins);
        }
    }
}

impl Shared {
    /// Life of a thread.
    fn serve(&self) {
        let mut seen = 0;
        while let Some(epoch) = self.wait_for_call(seen) {
            seen = epoch;
            self.active.fetch_add(1, SeqCst);
            // Open now, after this thread became visible: the call cannot end before it leaves.
            let epoch = self.epoch.load(SeqCst);
            if epoch % 2 == 1 {
                seen = epoch;
                self.work();
            }
            self.active.fetch_sub(1, SeqCst);
        }
    }

    /// Jobs of the open call until none is left.
    fn work(&self) {
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
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(job))) {
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
            crew.run(count, &|i| {
                runs[i].fetch_add(1, SeqCst);
            });
            assert!(runs.iter().all(|n| n.load(SeqCst) == 1));
        }
    }

    #[test]
    fn sleepers_wake() {
        let crew = Crew::new(2);
        for _ in 0..5 {
            std::thread::sleep(std::time::Duration::from_millis(20));
            let threads = Mutex::new(std::collections::HashSet::new());
            crew.run(64, &|_| {
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
            crew.run(50, &|i| assert!(i != 17, "job seventeen"));
        }));
        let message = failing.unwrap_err();
        assert!(
            message
                .downcast_ref::<&str>()
                .is_some_and(|m| m.contains("job seventeen"))
        );
        let sum = AtomicUsize::new(0);
        crew.run(50, &|i| {
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
                        crew.run(4, &|_| {
                            crew.run(4, &|i| {
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
