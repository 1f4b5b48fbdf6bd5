//! Drawing tokens with exact sums.

mod common;

use common::{Bench, Random, assert_refused, b, bs};
use layerlet_core::NONE;
use layerlet_core::launch::LaunchError;
use layerlet_core::numerics::{bf16, draw_u64, exp};
use layerlet_core::ops::{History, Sample, SampleRule, sample_row};
use proptest::prelude::*;

const OFF: SampleRule = SampleRule {
    temperature: 1.0,
    top_k: 0,
    top_p: 1.0,
    min_p: 0.0,
    repetition: 1.0,
    presence: 0.0,
    frequency: 0.0,
};

const NO_HISTORY: History<'static> = History {
    prompt: &[],
    generated: &[],
};

/// How often each id is drawn by `draws` random numbers at equal distances.
fn shares(logits: &[bf16], rule: &SampleRule, draws: u64) -> Vec<u64> {
    let mut counts = vec![0; logits.len()];
    let step = u64::MAX / draws;
    for i in 0..draws {
        let id = sample_row(logits, rule, &NO_HISTORY, i * step + step / 2);
        counts[id as usize] += 1;
    }
    counts
}

#[test]
fn equal_logits_share_equally() {
    assert_eq!(shares(&[b(3.0); 8], &OFF, 800), [100; 8]);
}

#[test]
fn shares_follow_the_probabilities() {
    let logits = bs(&[0.0, 1.0, 2.0, -1.0, 0.5]);
    let weights: Vec<f64> = logits.iter().map(|l| f64::from(l.to_f32()).exp()).collect();
    let total: f64 = weights.iter().sum();
    let draws = 100_000;
    for (found, weight) in shares(&logits, &OFF, draws).iter().zip(&weights) {
        let expected = weight / total * draws as f64;
        assert!(
            (*found as f64 - expected).abs() <= 2.0,
            "{found} of {expected}"
        );
    }
}

/// The kept ids of a rule, by drawing often enough that every weight here is met.
fn kept(logits: &[f32], rule: SampleRule) -> Vec<usize> {
    let counts = shares(&bs(logits), &rule, 20_000);
    (0..logits.len()).filter(|i| counts[*i] > 0).collect()
}

#[test]
fn filters_by_hand() {
    let check = |logits: &[f32], rule: SampleRule, expect: &[usize]| {
        assert_eq!(kept(logits, rule), expect, "{logits:?} {rule:?}");
    };
    let four = [1.0, 3.0, 2.0, 0.0];
    check(&four, OFF, &[0, 1, 2, 3]);
    check(&four, SampleRule { top_k: 2, ..OFF }, &[1, 2]);
    check(&four, SampleRule { top_k: 4, ..OFF }, &[0, 1, 2, 3]);
    check(&four, SampleRule { top_k: 9, ..OFF }, &[0, 1, 2, 3]);
    // A tie with the k-th is cut by id.
    check(
        &[1.0, 2.0, 2.0, 2.0],
        SampleRule { top_k: 2, ..OFF },
        &[1, 2],
    );
    // exp(-1) = 0.368, exp(-2) = 0.135, exp(-3) = 0.0498 of the likeliest.
    check(&four, SampleRule { min_p: 0.2, ..OFF }, &[1, 2]);
    check(&four, SampleRule { min_p: 0.1, ..OFF }, &[0, 1, 2]);
    check(&four, SampleRule { min_p: 1.0, ..OFF }, &[1]);
    check(&four, SampleRule { min_p: 2.0, ..OFF }, &[1]);
    // Shares are 0.644, 0.237, 0.087, 0.032.
    check(&four, SampleRule { top_p: 0.64, ..OFF }, &[1]);
    check(&four, SampleRule { top_p: 0.65, ..OFF }, &[1, 2]);
    check(&four, SampleRule { top_p: 0.9, ..OFF }, &[0, 1, 2]);
    check(&four, SampleRule { top_p: 1e-9, ..OFF }, &[1]);
    check(&four, SampleRule { top_p: 0.0, ..OFF }, &[1]);
    // Exactly half of four equal ones is two of them.
    check(&[0.0; 4], SampleRule { top_p: 0.5, ..OFF }, &[0, 1]);
    // top-p takes its part of what top-k left.
    let both = SampleRule {
        top_k: 2,
        top_p: 0.7,
        ..OFF
    };
    check(&four, both, &[1]);
    for off in [f32::NAN, 1.0, 2.0] {
        check(&four, SampleRule { top_p: off, ..OFF }, &[0, 1, 2, 3]);
    }
    for off in [f32::NAN, -0.0, -1.0] {
        check(&four, SampleRule { min_p: off, ..OFF }, &[0, 1, 2, 3]);
    }
}

#[test]
fn logits_without_meaning() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let check = |logits: &[f32], expect: &[usize]| assert_eq!(kept(logits, OFF), expect);
    check(&[nan, 1.0, nan, 1.0], &[1, 3]);
    check(&[-inf, 1.0, -inf], &[1]);
    check(&[inf, 1.0, inf], &[0, 2]);
    check(&[nan, -inf, -inf], &[1]);
    check(&[nan, nan], &[0]);
    // 2^-32 of the likeliest is the least that can be drawn.
    check(&[0.0, -23.0, 0.0], &[0, 2]);
}

#[test]
fn greedy_is_argmax_of_the_penalised() {
    let greedy = SampleRule {
        temperature: 0.0,
        ..OFF
    };
    let check = |logits: &[f32], rule: SampleRule, prompt: &[u32], generated: &[u32], expect| {
        let history = History { prompt, generated };
        for draw in [0, 1 << 63, u64::MAX] {
            assert_eq!(sample_row(&bs(logits), &rule, &history, draw), expect);
        }
    };
    check(&[1.0, 3.0, 3.0, 2.0], greedy, &[], &[], 1);
    check(
        &[1.0, 3.0],
        SampleRule {
            temperature: -0.0,
            ..greedy
        },
        &[],
        &[],
        1,
    );
    // 3 / 2 is below 2; only the prompt holds it.
    let repetition = SampleRule {
        repetition: 2.0,
        ..greedy
    };
    check(&[2.0, 3.0], repetition, &[1], &[], 0);
    check(&[2.0, 3.0], repetition, &[], &[1], 0);
    // Negative logits are multiplied: -1 becomes -2.
    check(&[-1.0, -1.5], repetition, &[0], &[], 1);
    // Counted once however often it was seen: 8 / 2 = 4 is above 3, 8 / 4 would not be.
    check(&[8.0, 3.0], repetition, &[0, 0, 0], &[0, 0], 0);
    // Presence and frequency look at the generated part alone.
    let presence = SampleRule {
        presence: 2.0,
        ..greedy
    };
    check(&[3.0, 2.0], presence, &[0], &[], 0);
    check(&[3.0, 2.0], presence, &[], &[0], 1);
    let frequency = SampleRule {
        frequency: 0.5,
        ..greedy
    };
    check(&[3.0, 2.0], frequency, &[0, 0, 0], &[0], 0);
    check(&[3.0, 2.0], frequency, &[], &[0, 0, 0], 1);
}

/// The same definition by another road: cumulative sums of all ids instead of a walk over the kept.
fn by_ranks(logits: &[bf16], rule: &SampleRule, draw: u64) -> u32 {
    let scaled: Vec<f32> = logits
        .iter()
        .map(|l| l.to_f32() / rule.temperature)
        .collect();
    let max = scaled.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut weights: Vec<u128> = scaled
        .iter()
        .map(|l| match *l == max {
            true => 1 << 32,
            false => (f64::from(exp(l - max)) * 4_294_967_296.0).floor() as u128,
        })
        .collect();
    let mut ranks: Vec<usize> = (0..logits.len()).collect();
    // Stable: equal logits stay in order of id.
    ranks.sort_by(|a, b| scaled[*b].partial_cmp(&scaled[*a]).unwrap());
    ranks.retain(|id| weights[*id] > 0);
    let k = if rule.top_k == 0 {
        ranks.len()
    } else {
        rule.top_k as usize
    };
    let least = (f64::from(rule.min_p) * 4_294_967_296.0).floor() as u128;
    let survive = |n: usize, id: usize| n == 0 || (n < k && weights[id] >= least);
    let left: Vec<usize> = (0..ranks.len())
        .filter(|n| survive(*n, ranks[*n]))
        .map(|n| ranks[n])
        .collect();
    let total: u128 = left.iter().map(|id| weights[*id]).sum();
    let wanted = (f64::from(rule.top_p) * 4_294_967_296.0).floor() as u128 * total;
    let mut keep = 0;
    let mut sum = 0u128;
    while keep < left.len() && (keep == 0 || sum << 32 < wanted || rule.top_p >= 1.0) {
        sum += weights[left[keep]];
        keep += 1;
    }
    for (id, weight) in weights.iter_mut().enumerate() {
        if !left[..keep].contains(&id) {
            *weight = 0;
        }
    }
    let total: u128 = weights.iter().sum();
    let target = (u128::from(draw) * total) >> 64;
    let mut running = 0;
    for (id, weight) in weights.iter().enumerate() {
        running += weight;
        if running > target {
            return id as u32;
        }
    }
    unreachable!("the target is below the total")
}

proptest! {
    #[test]
    fn both_roads_meet(
        logits in prop::collection::vec(-12i32..12, 1..40),
        divisor in 1i32..6,
        temperature in prop::sample::select(vec![0.1f32, 0.7, 1.0, 3.0]),
        top_k in 0u32..12,
        top_p in prop::sample::select(vec![0.05f32, 0.5, 0.9, 1.0]),
        min_p in prop::sample::select(vec![0.0f32, 0.01, 0.3]),
        draw in any::<u64>(),
    ) {
        let logits: Vec<bf16> = logits.iter().map(|l| b(*l as f32 / divisor as f32)).collect();
        let rule = SampleRule { temperature, top_k, top_p, min_p, ..OFF };
        for draw in [draw, 0, u64::MAX] {
            prop_assert_eq!(sample_row(&logits, &rule, &NO_HISTORY, draw), by_ranks(&logits, &rule, draw));
        }
    }
}

/// Rows of one launch: logits, rule, seed, position, prompt, generated; none is an inert row.
type Row = Option<(Vec<bf16>, SampleRule, u64, u32, Vec<u32>, Vec<u32>)>;

fn launch(rows: &[Row], vocab: usize) -> (Bench, Sample) {
    let n = rows.len();
    let mut bench = Bench::default();
    let f = |g: fn(&SampleRule) -> f32| -> Vec<f32> {
        rows.iter()
            .map(|r| r.as_ref().map_or(0.0, |r| g(&r.1)))
            .collect()
    };
    let logits = rows.iter().flat_map(|r| match r {
        Some(r) => r.0.clone(),
        None => vec![bf16::NAN; vocab],
    });
    let (mut history, mut start, mut generated) = (Vec::new(), vec![0], Vec::new());
    for row in rows {
        if let Some((.., prompt, drawn)) = row {
            history.extend(prompt);
            generated.push(history.len() as u32);
            history.extend(drawn);
        } else {
            generated.push(history.len() as u32);
        }
        start.push(history.len() as u32);
    }
    history.push(0);
    let seed = |r: &Row| r.as_ref().map_or(0, |r| r.2);
    let ids = |g: fn(&Row) -> u32| rows.iter().map(g).collect::<Vec<u32>>();
    let op = Sample {
        logits: bench.input("logits", &[n, vocab], logits.collect()),
        out_rows: bench.input(
            "out_rows",
            &[n],
            ids(|r| if r.is_some() { 0 } else { NONE }),
        ),
        temperature: bench.input("temperature", &[n], f(|r| r.temperature)),
        top_k: bench.input("top_k", &[n], ids(|r| r.as_ref().map_or(0, |r| r.1.top_k))),
        top_p: bench.input("top_p", &[n], f(|r| r.top_p)),
        min_p: bench.input("min_p", &[n], f(|r| r.min_p)),
        repetition_penalty: bench.input("repetition", &[n], f(|r| r.repetition)),
        presence_penalty: bench.input("presence", &[n], f(|r| r.presence)),
        frequency_penalty: bench.input("frequency", &[n], f(|r| r.frequency)),
        seed: bench.input(
            "seed",
            &[n, 2],
            rows.iter()
                .flat_map(|r| [seed(r) as u32, (seed(r) >> 32) as u32])
                .collect(),
        ),
        draw_position: bench.input("position", &[n], ids(|r| r.as_ref().map_or(0, |r| r.3))),
        history: bench.input("history", &[history.len()], history),
        history_start: bench.input("history_start", &[n + 1], start),
        history_generated: bench.input("history_generated", &[n], generated),
        tokens: bench.output("tokens", &[n]),
    };
    (bench, op)
}

fn run(rows: &[Row], vocab: usize) -> Result<Vec<u32>, LaunchError> {
    let (mut bench, op) = launch(rows, vocab);
    bench.run(op.clone())?;
    Ok(bench.get(op.tokens).to_vec())
}

fn some_row(random: &mut Random, vocab: usize) -> Row {
    let rule = SampleRule {
        temperature: 0.5 + random.below(3) as f32,
        top_k: random.below(5) as u32,
        presence: 0.5,
        repetition: 1.25,
        ..OFF
    };
    let ids = |random: &mut Random, n| (0..n).map(|_| random.below(vocab) as u32).collect();
    let (prompt, drawn) = (ids(random, 4), ids(random, 3));
    let seed = u64::from(random.bits()) << 32 | u64::from(random.bits());
    Some((
        random.bf16s(vocab, 3.0),
        rule,
        seed,
        random.bits() % 9000,
        prompt,
        drawn,
    ))
}

/// A row's token is that of the row alone, whatever stands beside it; inert rows give NONE.
#[test]
fn company_does_not_show() {
    let vocab = 37;
    let random = &mut Random::new(5);
    let mut rows: Vec<Row> = (0..9).map(|_| some_row(random, vocab)).collect();
    rows[2] = None;
    rows[8] = None;
    let together = run(&rows, vocab).unwrap();
    for (row, token) in rows.iter().zip(together) {
        assert_eq!(run(std::slice::from_ref(row), vocab), Ok(vec![token]));
        match row {
            None => assert_eq!(token, NONE),
            Some((logits, rule, seed, position, prompt, generated)) => {
                let history = History { prompt, generated };
                let draw = draw_u64(*seed, *position);
                assert_eq!(token, sample_row(logits, rule, &history, draw));
            }
        }
    }
}

/// Both words of the seed and the position reach the draw.
#[test]
fn seed_and_position_matter() {
    let logits = vec![b(0.0); 997];
    let at = |seed, position| {
        let row = Some((logits.clone(), OFF, seed, position, vec![], vec![]));
        run(&[row], 997).unwrap()[0]
    };
    let first = at(1, 2);
    assert_eq!(first, at(1, 2));
    assert_ne!(first, at(1, 3));
    assert_ne!(first, at(2, 2));
    assert_ne!(first, at(1 | 1 << 32, 2));
}

#[test]
fn histories_that_do_not_fit_are_refused() {
    let vocab = 5;
    let row = || some_row(&mut Random::new(1), vocab);
    let mut stray = row();
    if let Some(row) = &mut stray {
        row.4[0] = 5;
    }
    assert_refused(
        run(&[stray], vocab).map(drop),
        &["an id of the history", "5", "below 5"],
    );
    let bounds = [([3, 7], 2), ([0, 9], 4), ([0, 3], 4), ([4, 3], 4)];
    for (start, generated) in bounds {
        let (mut bench, mut op) = launch(&[row()], vocab);
        op.history_start = bench.input("start", &[2], start.to_vec());
        op.history_generated = bench.input("split", &[1], vec![generated]);
        assert_refused(bench.run(op), &["a history bound", "within the buffer"]);
    }
}

#[test]
fn shapes_that_do_not_agree_are_refused() {
    let good = || launch(&[some_row(&mut Random::new(1), 5)], 5);
    let check = |change: fn(&mut Bench, &mut Sample), name: &str| {
        let (mut bench, mut op) = good();
        change(&mut bench, &mut op);
        assert_refused(bench.check(op), &[name]);
    };
    check(
        |b, op| op.seed = b.input("wrong", &[2, 1], vec![0; 2]),
        "wrong",
    );
    check(
        |b, op| op.history_start = b.input("wrong", &[1], vec![0]),
        "wrong",
    );
    check(
        |b, op| op.temperature = b.input("wrong", &[2], vec![0.0; 2]),
        "wrong",
    );
    check(|b, op| op.tokens = b.output("wrong", &[2]), "wrong");
    check(
        |b, op| op.logits = b.input("wrong", &[5], vec![bf16::ZERO; 5]),
        "wrong",
    );
}
