//! Shadow verification over a sound backend and over backends with a planted fault.

mod common;

use common::tiny;
use layerlet_core::backend::{Backend, BackendError, DeviceIdentity, Instance};
use layerlet_core::buffer::{Buf, BufferTable};
use layerlet_core::fixture::{Fixture, FixtureError};
use layerlet_core::launch::{Launch, LaunchError, Layerlet};
use layerlet_core::memory::{HostBuffer, Memory};
use layerlet_core::numerics::bf16;
use layerlet_core::plan::SamplingParams;
use layerlet_core::reference::{Execute, HostInstance, Reference};
use layerlet_engine::checkpoint::Checkpoint;
use layerlet_engine::shadow::{Alarm, Handle, Policy, Settings, Shadow};
use layerlet_engine::{EngineError, Model, Options, Request, generate};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// The reference, but for one bit in the first element that one kernel writes.
#[derive(Clone, Copy)]
struct Faulty(&'static str);

impl Execute for Faulty {
    fn execute(&mut self, launch: &Launch, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        launch.run(memory)?;
        if launch.name() == self.0 {
            let first = &mut memory.get_mut(result(launch))[0];
            *first = bf16::from_bits(first.to_bits() ^ 1);
        }
        Ok(())
    }

    fn adopt(&mut self, _model: &mut [HostBuffer]) {}
}

/// The bf16 buffer that a launch leaves.
fn result(launch: &Launch) -> Buf<bf16> {
    match launch {
        Launch::Fused(fused) => result(fused.stages.last().expect("stages")),
        Launch::RmsNorm(op) => op.out,
        Launch::GatedRmsNorm(op) => op.out,
        other => panic!("no fault is planted in {}", other.name()),
    }
}

impl Backend for Faulty {
    fn identity(&self) -> DeviceIdentity {
        Reference.identity()
    }

    fn layerlets(&self) -> &[Layerlet] {
        &Layerlet::ALL
    }

    fn open(&self, model: &BufferTable) -> Result<Box<dyn Instance>, BackendError> {
        Ok(Box::new(HostInstance::new(model, *self)))
    }
}

struct Watched {
    model: Model,
    handle: Handle,
    alarms: Arc<Mutex<Vec<Alarm>>>,
    folder: tempfile::TempDir,
}

const MEMORY: usize = 256 << 20;

fn watch(backend: impl Backend + 'static, share: &str, policy: Policy, memory: usize) -> Watched {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = Settings {
        share: share.parse().expect("a share"),
        policy,
        folder: folder.path().join("made/when/needed"),
        memory,
        seed: 1,
    };
    let alarms = Arc::new(Mutex::new(Vec::new()));
    let heard = alarms.clone();
    let shadow = Shadow::new(Box::new(backend), settings, move |alarm| {
        heard.lock().expect("alarms").push(alarm.clone());
    });
    let checkpoint = Checkpoint::open(&tiny("quark")).expect("opens");
    let options = Options::for_one_sequence(32);
    Watched {
        model: Model::load(&checkpoint, &shadow, &options, |_, _| {}).expect("loads"),
        handle: shadow.handle(),
        alarms,
        folder,
    }
}

fn tokens(model: &mut Model) -> Result<Vec<u32>, EngineError> {
    let request = Request {
        prompt: &[3, 141, 59, 26, 511, 0, 358],
        max_tokens: 4,
        sampling: SamplingParams {
            temperature: 1.0,
            seed: 5,
            ..Default::default()
        },
        stop_ids: &[],
        chunk: 4,
    };
    generate(model, &request, |_| ControlFlow::Continue(())).map(|g| g.tokens)
}

fn truth() -> Vec<u32> {
    let checkpoint = Checkpoint::open(&tiny("quark")).expect("opens");
    let options = Options::for_one_sequence(32);
    let mut model = Model::load(&checkpoint, &Reference, &options, |_, _| {}).expect("loads");
    tokens(&mut model).expect("generates")
}

fn read(path: &Path) -> Fixture {
    let bytes = std::fs::read(path).expect("the fixture that the alarm names");
    Fixture::decode(&bytes).expect("a fixture")
}

#[test]
fn every_launch_of_a_sound_backend_agrees() {
    let mut watched = watch(
        layerlet_cpu::Cpu::with_threads(2),
        "1/1",
        Policy::Stop,
        MEMORY,
    );
    assert_eq!(tokens(&mut watched.model).expect("generates"), truth());
    let stats = watched.handle.wait();
    assert!(stats.launches > 100, "{stats:?}");
    assert_eq!(
        (stats.drawn, stats.checked),
        (stats.launches, stats.launches)
    );
    assert_eq!(
        (stats.mismatches, stats.dropped, stats.too_large),
        (0, 0, 0)
    );
    assert!(!watched.folder.path().join("made").exists());
}

#[test]
fn one_wrong_bit_is_found_named_and_kept() {
    for kernel in ["rms_norm", "gdn_layer"] {
        let mut watched = watch(Faulty(kernel), "1/1", Policy::Log, MEMORY);
        tokens(&mut watched.model).expect("the policy lets it run");
        let stats = watched.handle.wait();
        let alarms = watched.alarms.lock().expect("alarms");
        assert_eq!(stats.mismatches as usize, alarms.len());
        assert!(!alarms.is_empty());
        // Other kernels work on wrong inputs, and do so rightly.
        assert!(alarms.iter().all(|alarm| alarm.kernel == kernel));
        let kept: Vec<&Alarm> = alarms.iter().filter(|a| a.fixture.is_ok()).collect();
        assert!((1..=8).contains(&kept.len()), "{}", kept.len());
        for alarm in kept {
            let fixture = read(alarm.fixture.as_ref().expect("a path"));
            assert_eq!(fixture.subject, kernel);
            fixture.test(&Reference).expect("the reference is right");
            let found = fixture.test(&Faulty(kernel));
            assert!(
                matches!(found, Err(FixtureError::Mismatch { .. })),
                "{found:?}"
            );
        }
        let text = alarms[0].to_string();
        assert!(
            text.contains(kernel) && text.contains("--fixture"),
            "{text}"
        );
    }
}

#[test]
fn a_stopped_backend_says_why() {
    let mut watched = watch(Faulty("rms_norm"), "1/1", Policy::Stop, MEMORY);
    // The first launches may be through before the first is checked.
    let _ = tokens(&mut watched.model);
    watched.handle.wait();
    let error = tokens(&mut watched.model).expect_err("stopped").to_string();
    for fragment in ["stopped", "rms_norm", ".llfx"] {
        assert!(error.contains(fragment), "no {fragment:?} in {error}");
    }
}

#[test]
fn the_reference_takes_over_from_a_wrong_kernel() {
    for kernel in ["rms_norm", "gdn_layer"] {
        let mut watched = watch(Faulty(kernel), "1/1", Policy::Fallback, MEMORY);
        tokens(&mut watched.model).expect("it goes on");
        let before = watched.handle.wait();
        assert!(before.mismatches > 0);
        // From here on nothing is wrong any more.
        assert_eq!(tokens(&mut watched.model).expect("it goes on"), truth());
        let after = watched.handle.wait();
        assert_eq!(after.mismatches, before.mismatches);
        assert!(after.replaced > before.replaced);
    }
}

#[test]
fn a_share_is_drawn_and_too_much_is_let_go() {
    let mut watched = watch(Reference, "1/7", Policy::Log, MEMORY);
    tokens(&mut watched.model).expect("generates");
    let some = watched.handle.wait();
    assert!(some.drawn > 0 && some.drawn < some.launches / 3, "{some:?}");
    assert_eq!(some.checked, some.drawn);

    let mut watched = watch(Faulty("rms_norm"), "1/1", Policy::Stop, 1);
    tokens(&mut watched.model).expect("nothing was seen");
    let none = watched.handle.wait();
    assert_eq!((none.checked, none.too_large), (0, none.launches));
}
