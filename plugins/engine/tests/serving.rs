//! The running engine: many callers at once, hang-ups, a full queue, the end, a device that fails.

mod common;

use common::tiny;
use layerlet_core::backend::{Backend, BackendError, DeviceIdentity, Instance, Place, PlanId};
use layerlet_core::buffer::BufferTable;
use layerlet_core::launch::Layerlet;
use layerlet_core::plan::{Capacity, Plan};
use layerlet_core::reference::Reference;
use layerlet_engine::checkpoint::Checkpoint;
use layerlet_engine::serving::{
    Engine, Event, LogitsProcessor, Receiver, Sampling, ServingRequest, Settings, Spec,
    SubmitError, Usage,
};
use layerlet_engine::{Finish, Model, Options, Request, generate};
use std::ops::{ControlFlow, Range};

const PAGE: usize = 8;
const POSITIONS: usize = 96;

fn load(backend: &dyn Backend, state_slots: usize, kv_pages: usize) -> Model {
    let checkpoint = Checkpoint::open(&tiny("quark")).expect("opens");
    let capacity = Capacity {
        state_slots,
        kv_pages,
        page_size: PAGE,
        max_positions: POSITIONS,
    };
    let options = Options {
        capacity,
        fused: true,
    };
    Model::load(&checkpoint, backend, &options, |_, _| {}).expect("loads")
}

fn start(settings: Settings) -> Engine {
    let model = load(&Reference, settings.max_sequences * 2 + 4, 40);
    Engine::start(model, settings).expect("starts")
}

fn small() -> Settings {
    Settings {
        max_sequences: 8,
        token_budget: 64,
        queue: 512,
        ..Settings::default()
    }
}

fn request(n: u32) -> ServingRequest {
    let length = 3 + n % 23;
    ServingRequest {
        prompt: (0..length)
            .map(|at| if at < 9 { at } else { n * 31 + at } % 512)
            .collect(),
        max_tokens: 4 + n as usize % 9,
        sampling: Sampling {
            temperature: if n.is_multiple_of(2) { 0.0 } else { 0.9 },
            seed: n.into(),
            ..Sampling::default()
        },
        stop_ids: Vec::new(),
        client: format!("client {}", n % 3),
        logprobs: None,
        prompt_logprobs: None,
        digest: false,
        processor: None,
    }
}

/// The generation loop of one sequence.
fn alone(model: &mut Model, request: &ServingRequest) -> Vec<u32> {
    let request = Request {
        prompt: &request.prompt,
        max_tokens: request.max_tokens,
        sampling: request.sampling,
        stop_ids: &request.stop_ids,
        chunk: 5,
    };
    let generated = generate(model, &request, |_| ControlFlow::Continue(()));
    generated.expect("generates").tokens
}

#[derive(Debug, Default)]
struct Answer {
    tokens: Vec<u32>,
    finish: Option<Finish>,
    usage: Usage,
    digest: Option<[u8; 32]>,
    failed: Option<String>,
}

fn hear(mut receiver: Receiver) -> Answer {
    let mut answer = Answer::default();
    while let Some(event) = receiver.blocking_next() {
        match event {
            Event::Token { id, .. } => answer.tokens.push(id),
            Event::PromptLogprobs(_) => {}
            Event::Done {
                finish,
                usage,
                logits_sha256,
            } => {
                (answer.finish, answer.usage) = (Some(finish), usage);
                answer.digest = logits_sha256;
            }
            Event::Failed(reason) => answer.failed = Some(reason),
        }
    }
    answer
}

#[test]
fn sixty_four_callers_at_once_each_hear_their_answer_alone() {
    let mut model = load(&Reference, 1, POSITIONS / PAGE);
    for spec in [Spec::Off, Spec::NGram { k: 3 }] {
        let engine = start(Settings { spec, ..small() });
        let callers: Vec<_> = (0..64)
            .map(|n| {
                let engine = engine.clone();
                std::thread::spawn(move || hear(engine.submit(request(n)).expect("taken")))
            })
            .collect();
        for (n, caller) in (0..).zip(callers) {
            let answer = caller.join().expect("heard");
            assert_eq!(answer.tokens, alone(&mut model, &request(n)), "request {n}");
            assert_eq!(answer.finish, Some(Finish::Length));
            assert_eq!(answer.usage.generated, answer.tokens.len());
        }
        let stats = settled(&engine);
        assert_eq!((stats.finished, stats.failed), (64, 0));
        assert!(stats.cache_hit_tokens > 0, "{stats:?}");
    }
}

/// The books of an engine that has nothing more to do.
fn settled(engine: &Engine) -> layerlet_engine::serving::Stats {
    loop {
        let stats = engine.stats();
        if stats.running == 0 && stats.waiting == 0 {
            return stats;
        }
        std::thread::yield_now();
    }
}

/// Case 18 and case 34: requests that hang up at any moment leave nothing behind.
fn storm(requests: u32) {
    let engine = start(small());
    let mut last_plateau = None;
    for round in 0..requests / 100 {
        let receivers = (0..100).map(|n| {
            let receiver = engine.submit(request(round * 100 + n)).expect("taken");
            (n, receiver)
        });
        for (n, mut receiver) in receivers.collect::<Vec<_>>() {
            match n % 3 {
                0 => drop(receiver),
                1 => drop(receiver.blocking_next()),
                _ => assert_eq!(hear(receiver).finish, Some(Finish::Length)),
            }
        }
        let stats = settled(&engine);
        assert_eq!((stats.kv_pages_used, stats.slots_used), (0, 0), "{stats:?}");
        let kept = (stats.kv_pages_cached, stats.slots_cached);
        assert!(kept.0 <= stats.kv_pages_total && kept.1 <= 16, "{stats:?}");
        assert_eq!(stats.finished + stats.cancelled, u64::from(round + 1) * 100);
        last_plateau = Some(kept);
    }
    assert!(last_plateau.is_some());
}

#[test]
fn hang_ups_leave_no_page_and_no_slot_behind() {
    storm(300);
}

#[test]
#[ignore = "minutes without --release: cargo test --release -p layerlet-engine --test serving -- --ignored"]
fn ten_thousand_requests_with_hang_ups_leave_nothing_behind() {
    storm(10_000);
}

/// Case 18: B after A is B on a fresh engine. Case 22: so is B with its own prefix cached.
#[test]
fn a_cached_prefix_gives_the_bytes_of_a_miss() {
    let digest = |n| ServingRequest {
        digest: true,
        ..request(n)
    };
    let fresh = |n| hear(start(small()).submit(digest(n)).expect("taken"));
    let engine = start(small());
    for n in [22, 21, 22, 20, 22] {
        let answer = hear(engine.submit(digest(n)).expect("taken"));
        let expected = fresh(n);
        assert_eq!(
            (answer.tokens, answer.digest),
            (expected.tokens, expected.digest)
        );
        assert!(answer.digest.is_some());
    }
    let again = hear(engine.submit(digest(22)).expect("taken"));
    assert_eq!(again.usage.cached, 24, "three pages of the 25 tokens");
    let off = start(Settings {
        prefix_cache_pages: 0,
        ..small()
    });
    for _ in 0..2 {
        assert_eq!(hear(off.submit(digest(22)).expect("taken")).usage.cached, 0);
    }
}

#[test]
fn log_probabilities_belong_to_the_tokens() {
    let engine = start(small());
    let asked = ServingRequest {
        logprobs: Some(3),
        prompt_logprobs: Some(1),
        ..request(4)
    };
    let (prompt, max_tokens) = (asked.prompt.len(), asked.max_tokens);
    let mut receiver = engine.submit(asked).expect("taken");
    match receiver.blocking_next() {
        Some(Event::PromptLogprobs(all)) => assert_eq!(all.len(), prompt - 1),
        other => panic!("{other:?}"),
    }
    for _ in 0..max_tokens {
        let Some(Event::Token {
            id,
            logprobs: Some(found),
        }) = receiver.blocking_next()
        else {
            panic!("a token with its log probability");
        };
        // Greedy: the token is the likeliest.
        assert_eq!(found.top.len(), 3);
        assert_eq!(found.top[0], (id, found.logprob));
        assert!(found.top.windows(2).all(|w| w[0].1 >= w[1].1) && found.logprob <= 0.0);
    }
}

/// Lets one id through.
struct Only(u32);

impl LogitsProcessor for Only {
    fn process(&mut self, generated: &[u32], logits: &mut [f32]) -> Result<(), String> {
        if generated.len() == 3 {
            return Err("three are enough".into());
        }
        let allowed = self.0 as usize;
        (logits.iter_mut().enumerate()).for_each(|(id, l)| {
            if id != allowed {
                *l = f32::NEG_INFINITY;
            }
        });
        Ok(())
    }
}

#[test]
fn a_processor_decides_and_its_error_is_its_requests_alone() {
    let engine = start(Settings {
        spec: Spec::NGram { k: 4 },
        ..small()
    });
    let processor: Box<dyn LogitsProcessor> = Box::new(Only(77));
    let with = ServingRequest {
        processor: Some(processor),
        max_tokens: 9,
        ..request(1)
    };
    let (with, without) = (
        engine.submit(with).expect("taken"),
        engine.submit(request(2)).expect("taken"),
    );
    let (with, without) = (hear(with), hear(without));
    assert_eq!(with.tokens, [77, 77, 77]);
    assert_eq!(with.failed.as_deref(), Some("three are enough"));
    assert_eq!(
        without.tokens,
        alone(&mut load(&Reference, 1, POSITIONS / PAGE), &request(2))
    );
    assert!(engine.ready());
}

#[test]
fn a_full_queue_refuses_and_a_request_that_cannot_run_is_named() {
    let engine = start(Settings {
        queue: 2,
        max_sequences: 1,
        ..small()
    });
    let mut taken = Vec::new();
    let refused = loop {
        match engine.submit(ServingRequest {
            max_tokens: 60,
            ..request(0)
        }) {
            Ok(receiver) => taken.push(receiver),
            Err(error) => break error,
        }
        assert!(taken.len() < 100, "the queue has no end");
    };
    assert_eq!(refused, SubmitError::Busy(2));
    // Who hangs up makes room.
    taken.clear();
    hear(engine.submit(request(0)).expect("there is room again"));
    let invalid = |request| match engine.submit(request) {
        Err(SubmitError::Invalid(reason)) => reason,
        other => panic!("{other:?}"),
    };
    let no_prompt = ServingRequest {
        prompt: Vec::new(),
        ..request(0)
    };
    assert!(invalid(no_prompt).contains("the prompt's length is 0"));
    let long = ServingRequest {
        max_tokens: 1000,
        ..request(0)
    };
    assert!(invalid(long).contains("at most 96"));
    let stray = ServingRequest {
        prompt: vec![512],
        ..request(0)
    };
    assert!(invalid(stray).contains("below the vocabulary's 512"));
}

#[test]
fn draining_finishes_what_was_taken_and_stopping_ends_it() {
    let engine = start(small());
    let receivers: Vec<_> = (0..20)
        .map(|n| engine.submit(request(n)).expect("taken"))
        .collect();
    engine.drain();
    assert!(!engine.ready());
    assert_eq!(
        engine.submit(request(0)).expect_err("refused"),
        SubmitError::Draining
    );
    for receiver in receivers {
        assert_eq!(hear(receiver).finish, Some(Finish::Length));
    }
    let engine = start(small());
    let receivers: Vec<_> = (0..20)
        .map(|n| engine.submit(request(n)).expect("taken"))
        .collect();
    engine.stop();
    for receiver in receivers {
        let answer = hear(receiver);
        let stopped = answer.failed.as_deref() == Some("the engine was stopped");
        assert!(stopped || answer.finish.is_some(), "{answer:?}");
    }
}

#[test]
fn settings_that_make_no_sense_are_refused_by_name() {
    let refused = |settings| match Engine::start(load(&Reference, 4, 12), settings) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("was taken"),
    };
    let many = Settings {
        max_sequences: 65,
        ..small()
    };
    assert_eq!(refused(many), "max_sequences is 65, expected 1 to 64");
    assert!(
        refused(Settings {
            queue: 0,
            ..small()
        })
        .starts_with("queue is 0")
    );
    let k = Settings {
        spec: Spec::NGram { k: 17 },
        ..small()
    };
    assert_eq!(refused(k), "the number of drafts is 17, expected 1 to 16");
    let headless = Settings {
        spec: Spec::Mtp { k: 1 },
        ..small()
    };
    assert!(refused(headless).contains("a checkpoint with a prediction head"));
}

/// Case 28: the device is lost after some steps.
#[test]
fn a_lost_device_fails_every_request_and_the_engine_says_so() {
    let model = load(&Mortal, 20, 40);
    let engine = Engine::start(model, small()).expect("starts");
    let receivers: Vec<_> = (0..30)
        .filter_map(|n| engine.submit(request(n)).ok())
        .collect();
    assert!(!receivers.is_empty());
    let answers: Vec<Answer> = receivers.into_iter().map(hear).collect();
    let lost = |a: &&Answer| {
        a.failed
            .as_deref()
            .is_some_and(|e| e.contains("the device is lost"))
    };
    assert!(answers.iter().filter(lost).count() > 0);
    assert!(
        answers
            .iter()
            .all(|a| a.finish.is_some() || a.failed.is_some())
    );
    assert!(!engine.ready());
    assert!(
        engine
            .failure()
            .is_some_and(|e| e.contains("the device is lost"))
    );
    assert!(matches!(
        engine.submit(request(0)),
        Err(SubmitError::Failed(_))
    ));
    // A new one starts in the same process.
    let engine = start(small());
    assert_eq!(
        hear(engine.submit(request(0)).expect("taken")).finish,
        Some(Finish::Length)
    );
}

/// The reference, for five steps.
struct Mortal;

struct MortalInstance(Box<dyn Instance>, usize);

impl Backend for Mortal {
    fn identity(&self) -> DeviceIdentity {
        Reference.identity()
    }

    fn layerlets(&self) -> &[Layerlet] {
        &[]
    }

    fn open(&self, model: &BufferTable) -> Result<Box<dyn Instance>, BackendError> {
        Ok(Box::new(MortalInstance(Reference.open(model)?, 5)))
    }
}

impl Instance for MortalInstance {
    fn write(&mut self, place: Place, offset: usize, bytes: &[u8]) -> Result<(), BackendError> {
        self.0.write(place, offset, bytes)
    }

    fn read(&mut self, place: Place, offset: usize, bytes: &mut [u8]) -> Result<(), BackendError> {
        self.0.read(place, offset, bytes)
    }

    fn prepare(&mut self, plan: &Plan) -> Result<PlanId, BackendError> {
        self.0.prepare(plan)
    }

    fn run_range(&mut self, plan: PlanId, launches: Range<usize>) -> Result<(), BackendError> {
        self.1 = self.1.checked_sub(1).ok_or_else(|| BackendError::Device {
            backend: "mortal".into(),
            message: "the device is lost".into(),
        })?;
        self.0.run_range(plan, launches)
    }

    fn poison(&mut self, plan: PlanId, byte: u8) -> Result<(), BackendError> {
        self.0.poison(plan, byte)
    }
}
