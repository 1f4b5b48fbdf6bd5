//! Random routes, as strategies that shrink: fewer tokens, fewer experts, plainer numbers.

use super::route::Route;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

/// What is peculiar about the routes of a strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any experts.
    Uniform,
    /// One expert has every token.
    Hot,
    /// One expert has every pair.
    SingleExpert,
    /// All but `k` experts are empty.
    EmptyExperts,
    /// A token may name an expert twice.
    Duplicates,
    /// All weights and logits of a token are equal.
    Ties,
    /// Pairs and whole tokens that go nowhere.
    Inert,
    /// Hidden states of zeros.
    ZeroRows,
    /// The ends of the range in hidden states and weights.
    ExtremeScales,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 9] = [
        Kind::Uniform,
        Kind::Hot,
        Kind::SingleExpert,
        Kind::EmptyExperts,
        Kind::Duplicates,
        Kind::Ties,
        Kind::Inert,
        Kind::ZeroRows,
        Kind::ExtremeScales,
    ];

    /// Name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Uniform => "uniform",
            Kind::Hot => "hot",
            Kind::SingleExpert => "single expert",
            Kind::EmptyExperts => "empty experts",
            Kind::Duplicates => "duplicates",
            Kind::Ties => "ties",
            Kind::Inert => "inert",
            Kind::ZeroRows => "zero rows",
            Kind::ExtremeScales => "extreme scales",
        }
    }
}

/// Beyond every tile and block of a kernel.
const MOST_TOKENS: usize = 130;
const MOST_EXPERTS: usize = 16;
const MOST_K: usize = 4;

#[derive(Clone, Debug)]
struct Token {
    ids: Vec<i64>,
    weights: Vec<f32>,
    scale: f32,
}

/// Routes of one kind.
pub fn routes(kind: Kind) -> impl Strategy<Value = Route> {
    (1..=MOST_EXPERTS)
        .prop_flat_map(|experts| (Just(experts), 1..=experts.min(MOST_K)))
        .prop_flat_map(|(experts, k)| {
            let few = subsequence((0..experts as i64).collect::<Vec<_>>(), k);
            (Just(experts), Just(k), few)
        })
        .prop_flat_map(move |(experts, k, few)| {
            let tokens = vec(token(kind, experts, k, few), 0..=MOST_TOKENS);
            tokens.prop_map(move |tokens| route(experts, tokens))
        })
}

fn route(experts: usize, tokens: Vec<Token>) -> Route {
    Route {
        layer: 0,
        experts: Some(experts),
        row_scale: tokens.iter().map(|t| t.scale).collect(),
        topk_weights: tokens.iter().map(|t| t.weights.clone()).collect(),
        topk_ids: tokens.into_iter().map(|t| t.ids).collect(),
    }
}

fn token(kind: Kind, experts: usize, k: usize, few: Vec<i64>) -> impl Strategy<Value = Token> {
    (ids(kind, experts, k, few), weights(kind, k), scale(kind)).prop_map(|(ids, weights, scale)| {
        Token {
            ids,
            weights,
            scale,
        }
    })
}

/// `few` are `k` experts that all tokens of the route know.
fn ids(kind: Kind, experts: usize, k: usize, few: Vec<i64>) -> BoxedStrategy<Vec<i64>> {
    let all: Vec<i64> = (0..experts as i64).collect();
    let distinct = subsequence(all.clone(), k).prop_shuffle();
    match kind {
        Kind::Uniform | Kind::Ties | Kind::ZeroRows | Kind::ExtremeScales => distinct.boxed(),
        Kind::Hot => {
            let hot = few[0];
            let others: Vec<i64> = all.into_iter().filter(|e| *e != hot).collect();
            let others = subsequence(others, k - 1);
            others
                .prop_map(move |others| [vec![hot], others].concat())
                .prop_shuffle()
                .boxed()
        }
        Kind::SingleExpert => Just(vec![few[0]; k]).boxed(),
        Kind::EmptyExperts => Just(few).prop_shuffle().boxed(),
        Kind::Duplicates => vec(0..experts as i64, k).boxed(),
        Kind::Inert => {
            let kept = prop_oneof![
                2 => Just(vec![true; k]),
                1 => Just(vec![false; k]),
                1 => vec(any::<bool>(), k),
            ];
            let drop = |(ids, kept): (Vec<i64>, Vec<bool>)| {
                let pairs = ids.into_iter().zip(kept);
                pairs.map(|(id, kept)| if kept { id } else { -1 }).collect()
            };
            (distinct, kept).prop_map(drop).boxed()
        }
    }
}

fn weights(kind: Kind, k: usize) -> BoxedStrategy<Vec<f32>> {
    match kind {
        Kind::Ties => Just(vec![1.0 / k as f32; k]).boxed(),
        Kind::ExtremeScales => {
            let ends = vec![0.0, -0.0, 1.0, -1.0, 1e-40, 1e-30, 1e30, -3.4e38];
            vec(select(ends), k).boxed()
        }
        _ => vec(1u32..=1000, k)
            .prop_map(|parts| {
                let sum: u32 = parts.iter().sum();
                parts.iter().map(|p| *p as f32 / sum as f32).collect()
            })
            .boxed(),
    }
}

fn scale(kind: Kind) -> BoxedStrategy<f32> {
    match kind {
        Kind::ZeroRows => prop_oneof![Just(0.0f32), Just(1.0)].boxed(),
        Kind::ExtremeScales => {
            let ends = vec![1.0, 0.0, 1e-40, 1e-38, 1e-30, 1e-11, 1e10, 1e30, 1e38];
            select(ends).boxed()
        }
        _ => prop_oneof![4 => Just(1.0f32), 1 => Just(0.01), 1 => Just(30.0)].boxed(),
    }
}
