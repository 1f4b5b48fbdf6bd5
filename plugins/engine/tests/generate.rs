//! The generation loop: limits, ends, seeds, chunks, and what is refused before the first step.

mod common;

use common::tiny;
use layerlet_core::plan::SamplingParams;
use layerlet_core::reference::Reference;
use layerlet_engine::checkpoint::Checkpoint;
use layerlet_engine::{Finish, Generated, Model, Options, Request, generate};
use std::ops::ControlFlow;

const PROMPT: [u32; 11] = [3, 141, 59, 26, 511, 0, 358, 97, 93, 238, 46];
const ROOM: usize = 64;

fn model() -> Model {
    let checkpoint = Checkpoint::open(&tiny("quark")).expect("opens");
    let options = Options::for_one_sequence(ROOM);
    Model::load(&checkpoint, &Reference, &options, |_, _| {}).expect("loads")
}

fn request() -> Request<'static> {
    Request {
        prompt: &PROMPT,
        max_tokens: 8,
        sampling: SamplingParams::default(),
        stop_ids: &[],
        chunk: 64,
    }
}

fn sampled(seed: u64) -> SamplingParams {
    SamplingParams {
        temperature: 1.0,
        top_k: 50,
        top_p: 0.95,
        seed,
        ..Default::default()
    }
}

fn run(model: &mut Model, request: &Request) -> Generated {
    let mut heard = Vec::new();
    let generated = generate(model, request, |token| {
        heard.push(token);
        ControlFlow::Continue(())
    });
    let generated = generated.expect("generates");
    assert_eq!(
        heard, generated.tokens,
        "every token is heard once, in order"
    );
    generated
}

#[test]
fn it_ends_at_the_limit_at_a_stop_id_or_when_told() {
    let mut model = model();
    let whole = run(&mut model, &request());
    assert_eq!((whole.tokens.len(), whole.finish), (8, Finish::Length));
    for max_tokens in 1..8 {
        let short = run(
            &mut model,
            &Request {
                max_tokens,
                ..request()
            },
        );
        assert_eq!(short.tokens, whole.tokens[..max_tokens]);
        assert_eq!(short.finish, Finish::Length);
    }
    // The first token that has not been drawn before it ends the text, and is not part of it.
    for stop in whole.tokens.iter().copied() {
        let first = whole.tokens.iter().position(|&t| t == stop);
        let stop_ids = [9999, stop];
        let stopped = run(
            &mut model,
            &Request {
                stop_ids: &stop_ids,
                ..request()
            },
        );
        assert_eq!(stopped.tokens, whole.tokens[..first.expect("it is there")]);
        assert_eq!(stopped.finish, Finish::Stop);
    }
    let mut left = 3;
    let told = generate(&mut model, &request(), |_| {
        left -= 1;
        match left {
            0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    });
    let told = told.expect("generates");
    assert_eq!(
        (told.tokens.as_slice(), told.finish),
        (&whole.tokens[..3], Finish::Cancelled)
    );
}

#[test]
fn a_seed_gives_its_tokens_again_whatever_ran_before() {
    let mut used = model();
    let with = |seed| Request {
        sampling: sampled(seed),
        ..request()
    };
    let first = run(&mut used, &with(7));
    let others: Vec<Generated> = (8..12).map(|seed| run(&mut used, &with(seed))).collect();
    assert!(
        others.iter().any(|other| other.tokens != first.tokens),
        "seeds differ"
    );
    assert_eq!(run(&mut used, &with(7)), first);
    assert_eq!(run(&mut model(), &with(7)), first);
    // Without a draw the seed means nothing.
    let greedy = |seed| Request {
        sampling: SamplingParams {
            seed,
            ..Default::default()
        },
        ..request()
    };
    assert_eq!(run(&mut used, &greedy(1)), run(&mut used, &greedy(2)));
}

#[test]
fn chunks_of_any_size_give_the_same_tokens() {
    let mut model = model();
    let penalised = SamplingParams {
        repetition_penalty: 1.3,
        presence_penalty: 0.4,
        frequency_penalty: 0.2,
        ..sampled(3)
    };
    for sampling in [SamplingParams::default(), sampled(3), penalised] {
        let with = |chunk| Request {
            sampling,
            chunk,
            ..request()
        };
        let whole = run(&mut model, &with(64));
        for chunk in [1, 2, 3, 5, 10, 11, usize::MAX] {
            assert_eq!(
                run(&mut model, &with(chunk)),
                whole,
                "chunk {chunk}, {sampling:?}"
            );
        }
    }
}

#[test]
fn penalties_change_what_is_drawn() {
    let mut model = model();
    let sampling = SamplingParams {
        presence_penalty: 1000.0,
        ..Default::default()
    };
    let drawn = run(
        &mut model,
        &Request {
            sampling,
            max_tokens: 32,
            ..request()
        },
    )
    .tokens;
    let mut once = drawn.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(
        once.len(),
        drawn.len(),
        "no token is drawn twice: {drawn:?}"
    );
    let free = run(
        &mut model,
        &Request {
            max_tokens: 32,
            ..request()
        },
    )
    .tokens;
    assert_ne!(free, drawn);
}

#[test]
fn the_last_position_can_be_used_and_the_next_is_refused() {
    let mut model = model();
    let max_tokens = ROOM + 1 - PROMPT.len();
    let full = run(
        &mut model,
        &Request {
            max_tokens,
            ..request()
        },
    );
    assert_eq!(full.tokens.len(), max_tokens);
    for (max_tokens, needed) in [(max_tokens + 1, 65), (usize::MAX, usize::MAX)] {
        let error = generate(
            &mut model,
            &Request {
                max_tokens,
                ..request()
            },
            |_| panic!("nothing is drawn"),
        );
        let expect = format!(
            "prompt and generated tokens together is {needed}, expected at most {ROOM}, the positions this model was loaded with"
        );
        assert_eq!(error.expect_err("refused").to_string(), expect);
    }
}

#[test]
fn requests_are_refused_by_name_before_the_first_step() {
    let mut model = model();
    let mut check = |request: Request, expect: &str| {
        let error = generate(&mut model, &request, |_| panic!("nothing is drawn"));
        let error = error.expect_err("refused").to_string();
        assert!(error.contains(expect), "{error}, expected {expect}");
    };
    check(
        Request {
            prompt: &[],
            ..request()
        },
        "the prompt's length is 0, expected at least one token",
    );
    check(
        Request {
            max_tokens: 0,
            ..request()
        },
        "max_tokens is 0, expected at least 1",
    );
    check(
        Request {
            chunk: 0,
            ..request()
        },
        "chunk is 0, expected at least 1",
    );
    // In the second chunk, so that the first could have run.
    check(
        Request {
            prompt: &[0, 1, 512],
            chunk: 2,
            ..request()
        },
        "a token id of the prompt is 512 at index 2, expected below the vocabulary's 512",
    );
    let mut sampling = |change: fn(&mut SamplingParams), name: &str| {
        let mut sampling = sampled(0);
        change(&mut sampling);
        check(
            Request {
                sampling,
                ..request()
            },
            name,
        );
    };
    sampling(|s| s.temperature = -0.1, "temperature");
    sampling(|s| s.temperature = f32::NAN, "temperature");
    sampling(|s| s.temperature = f32::INFINITY, "temperature");
    sampling(|s| s.top_p = 0.0, "top_p");
    sampling(|s| s.top_p = 1.1, "top_p");
    sampling(|s| s.min_p = -0.1, "min_p");
    sampling(|s| s.min_p = 1.1, "min_p");
    sampling(|s| s.repetition_penalty = 0.0, "repetition_penalty");
    sampling(|s| s.presence_penalty = f32::NAN, "presence_penalty");
    sampling(|s| s.frequency_penalty = f32::INFINITY, "frequency_penalty");
}
