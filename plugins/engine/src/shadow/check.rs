//! The thread that runs the reference on what was copied.

use super::{Alarm, Policy, Reservation, Settings, Shared, lock};
use layerlet_core::buffer::BufferId;
use layerlet_core::fixture::{Fixture, digest, hex};
use layerlet_core::plan::Plan;
use layerlet_core::reference::Reference;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

/// Bytes of buffers.
pub type Contents = Vec<(BufferId, Vec<u8>)>;

/// One launch with what it read and what it left.
pub struct Watched {
    /// Operation or layerlet.
    pub kernel: &'static str,
    /// The launch alone.
    pub plan: Plan,
    /// Weights, state before, and what earlier launches wrote.
    pub inputs: Contents,
    /// State after, and outputs.
    pub found: Contents,
}

/// A launch that waits for the reference.
pub struct Sample {
    /// The launch.
    pub launch: Watched,
    /// Given back when it is done with.
    pub room: Reservation,
}

/// Fixtures that are kept of one kernel: the first few say what the thousandth would.
const KEPT: usize = 8;

/// Compares samples with the reference until nobody sends any more.
pub struct Checker {
    policy: Policy,
    folder: PathBuf,
    shared: Arc<Shared>,
    alarm: Box<dyn Fn(&Alarm) + Send>,
    kept: HashMap<&'static str, usize>,
}

impl Checker {
    pub fn new(
        settings: &Settings,
        shared: Arc<Shared>,
        alarm: Box<dyn Fn(&Alarm) + Send>,
    ) -> Checker {
        Checker {
            policy: settings.policy,
            folder: settings.folder.clone(),
            shared,
            alarm,
            kept: HashMap::new(),
        }
    }

    pub fn run(mut self, samples: &Receiver<Sample>) {
        while let Ok(sample) = samples.recv() {
            let room = sample.room;
            if let Some(alarm) = self.check(sample.launch) {
                self.raise(&alarm);
            }
            Shared::add(&self.shared.checked);
            // Whoever waits for all copies to be gone wants their counts.
            drop(room);
        }
    }

    fn check(&mut self, sample: Watched) -> Option<Alarm> {
        let kernel = sample.kernel;
        let unset = sample.found.iter().map(|(id, _)| (*id, [0; 32])).collect();
        let mut fixture = Fixture {
            name: format!("shadow/{kernel}"),
            subject: kernel.into(),
            plan: sample.plan,
            inputs: sample.inputs,
            outputs: unset,
        };
        fixture.outputs = match fixture.run(&Reference) {
            Ok(outputs) => outputs,
            Err(e) => {
                return Some(Alarm {
                    kernel,
                    problem: format!("ran on inputs that the reference refuses: {e}"),
                    fixture: Err("its results are not defined".into()),
                });
            }
        };
        let differing: Vec<&str> = (fixture.outputs.iter().zip(&sample.found))
            .filter_map(|((id, expected), (_, bytes))| {
                let decl = fixture.plan.buffers.get(*id).ok()?;
                (digest(decl.dtype, bytes) != *expected).then_some(decl.name.as_str())
            })
            .collect();
        if differing.is_empty() {
            return None;
        }
        let buffers = differing.join(", ");
        Some(Alarm {
            kernel,
            problem: format!("writes other bytes than the reference to {buffers}"),
            fixture: self.keep(kernel, &fixture),
        })
    }

    fn keep(&mut self, kernel: &'static str, fixture: &Fixture) -> Result<PathBuf, String> {
        let kept = self.kept.entry(kernel).or_default();
        if *kept == KEPT {
            return Err(format!("{KEPT} of {kernel} are kept already"));
        }
        let bytes = fixture.encode();
        let name = hex(&Sha256::digest(&bytes)[..6]);
        let path = self.folder.join(format!("{kernel}-{name}.llfx"));
        let written = fs::create_dir_all(&self.folder).and_then(|()| fs::write(&path, bytes));
        written.map_err(|e| format!("{}: {e}", path.display()))?;
        *kept += 1;
        Ok(path)
    }

    fn raise(&self, alarm: &Alarm) {
        Shared::add(&self.shared.mismatches);
        let mut verdict = lock(&self.shared.verdict);
        match self.policy {
            Policy::Log => {}
            Policy::Fallback => {
                verdict.wrong.insert(alarm.kernel);
            }
            Policy::Stop => {
                verdict.stopped.get_or_insert_with(|| alarm.to_string());
            }
        }
        drop(verdict);
        if self.policy != Policy::Log {
            self.shared.found.store(true, Ordering::Release);
        }
        (self.alarm)(alarm);
    }
}
