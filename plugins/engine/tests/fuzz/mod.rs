//! A small mutational fuzzer: seeded, so that a failing case is a number.
//!
//! A case is a list of mutation seeds applied in turn to valid files. What fails is reduced to the
//! mutations that it needs, described, and written to a folder that can be kept as a regression.

pub mod mutate;
pub mod verdict;

use mutate::{Files, Rng, mutate};
use peak_alloc::PeakAlloc;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Longer than this is a hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// One at a time: the peak of memory counts the whole process.
static TURN: Mutex<()> = Mutex::new(());

/// Names a case on standard error and ends the process if it does not end by itself.
struct Watch(Arc<AtomicU64>);

impl Watch {
    fn start() -> Watch {
        let seed = Arc::new(AtomicU64::new(u64::MAX));
        let watched = Arc::downgrade(&seed);
        std::thread::spawn(move || {
            let mut before = u64::MAX;
            loop {
                std::thread::sleep(PATIENCE);
                let Some(now) = watched.upgrade() else { return };
                let now = now.load(Ordering::Relaxed);
                if now == before {
                    eprintln!("case {now} has run for over {PATIENCE:?}");
                    std::process::exit(101);
                }
                before = now;
            }
        });
        Watch(seed)
    }
}

/// What is fuzzed.
pub struct Target<'a> {
    /// Names its cases and regressions.
    pub name: &'static str,
    /// Valid files.
    pub files: &'a Files,
    /// Reads a folder; what is wrong with how it went.
    pub check: &'a dyn Fn(&Path, &Files) -> Result<(), String>,
    /// Counts allocations.
    pub memory: &'static PeakAlloc,
    /// Bytes that may be allocated beside what is in proportion to the files.
    pub spare: usize,
}

/// How many cases to run: `LAYERLET_FUZZ_CASES`, or a number that takes a few seconds.
pub fn cases(default: u64) -> u64 {
    match std::env::var("LAYERLET_FUZZ_CASES") {
        Err(_) => default,
        Ok(text) => text.parse().expect("LAYERLET_FUZZ_CASES is a number"),
    }
}

impl Target<'_> {
    /// Runs the cases `0..count`.
    pub fn run(&self, count: u64) {
        let _turn = self.quiet_turn();
        let watch = Watch::start();
        for case in 0..count {
            watch.0.store(case, Ordering::Relaxed);
            let mut rng = Rng(case);
            let seeds: Vec<u64> = (0..1 + rng.below(3)).map(|_| rng.next()).collect();
            if self.outcome(&self.mutated(&seeds).0).is_err() {
                self.report(case, seeds);
            }
        }
    }

    /// Runs the files kept below `tests/regressions/NAME`, laid over the valid ones.
    pub fn run_regressions(&self) -> usize {
        let _turn = self.quiet_turn();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/regressions");
        let Ok(folders) = std::fs::read_dir(root.join(self.name)) else {
            return 0;
        };
        let folders: Vec<PathBuf> = folders.map(|f| f.expect("a folder").path()).collect();
        for folder in &folders {
            let mut files = self.files.clone();
            for file in std::fs::read_dir(folder).expect("a regression is a folder") {
                let file = file.expect("a file");
                let content = std::fs::read(file.path()).expect("a file");
                files.insert(file.file_name().into_string().expect("a name"), content);
            }
            if let Err(problem) = self.outcome(&files) {
                panic!("{}: {problem}", folder.display());
            }
        }
        folders.len()
    }

    fn quiet_turn(&self) -> MutexGuard<'static, ()> {
        TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn mutated(&self, seeds: &[u64]) -> (Files, Vec<String>) {
        let mut files = self.files.clone();
        let said = seeds.iter().map(|&seed| mutate(&mut files, seed)).collect();
        (files, said)
    }

    /// Reads the files from a folder, with an eye on panics and on memory.
    fn outcome(&self, files: &Files) -> Result<(), String> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (name, content) in files {
            std::fs::write(folder.path().join(name), content).expect("a temporary file");
        }
        let size: usize = files.values().map(Vec::len).sum();
        self.memory.reset_peak_usage();
        let before = self.memory.current_usage();
        let ran = catch_unwind(AssertUnwindSafe(|| (self.check)(folder.path(), files)));
        let grown = self.memory.peak_usage().saturating_sub(before);
        let allowed = self.spare + 32 * size;
        match ran {
            Err(_) => Err("it panicked".into()),
            Ok(Err(problem)) => Err(problem),
            Ok(Ok(())) if grown > allowed => Err(format!(
                "{grown} bytes were allocated for files of {size}, expected at most {allowed}"
            )),
            Ok(Ok(())) => Ok(()),
        }
    }

    /// Leaves out the mutations that are not needed, and says what remains.
    fn report(&self, case: u64, mut seeds: Vec<u64>) -> ! {
        let mut at = 0;
        while at < seeds.len() {
            let mut fewer = seeds.clone();
            fewer.remove(at);
            match self.outcome(&self.mutated(&fewer).0) {
                Err(_) => seeds = fewer,
                Ok(()) => at += 1,
            }
        }
        let (files, said) = self.mutated(&seeds);
        let problem = self.outcome(&files).expect_err("it failed before");
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{case}", self.name));
        std::fs::create_dir_all(&kept).expect("a folder for the case");
        for (name, content) in files {
            if self.files.get(&name) != Some(&content) {
                std::fs::write(kept.join(name), content).expect("a file of the case");
            }
        }
        panic!(
            "{} case {case}: {problem}\n  after {}\n  files in {} (keep them in tests/regressions/{}/)",
            self.name,
            said.join("\n  and "),
            kept.display(),
            self.name,
        );
    }
}
