//! Greedy head: fast because the logits of a few hundred tokens live in a buffer of the thread just
//! long enough to be compared with the best so far.

use super::stages::find;
use crate::argmax::{NAN_ORDER, order};
use crate::level::Level;
use crate::linear::{Input, TILE_ROWS, Weights, project};
use crate::pool::Pool;
use layerlet_core::NONE;
use layerlet_core::launch::Fused;
use layerlet_core::memory::Memory;
use layerlet_core::numerics::bf16;
use std::ops::Range;

/// Columns whose logits are compared at once.
const STRIP: usize = 256;

/// The best logit of a row in some columns, in argmax's order, and its token.
#[derive(Clone, Copy)]
struct Best {
    order: i16,
    token: u32,
}

/// What a job found for its rows.
struct Found {
    rows: Range<usize>,
    best: Vec<Best>,
    /// The strips of logits, each row by row, where they are to be kept.
    strips: Vec<(Range<usize>, Vec<bf16>)>,
}

/// `None`: not stages that this kernel knows, or rows out of range.
pub fn run(fused: &Fused, pool: &Pool, memory: &mut Memory<'_>) -> Option<()> {
    let head = find!(fused.stages, LmHead(op))?;
    let choice = find!(fused.stages, Argmax(op) if op.logits == head.logits && op.out_rows == head.out_rows)?;
    let [inputs, k] = memory.dims(head.x);
    let [vocabulary, _] = memory.dims(head.weight);
    let out_rows = memory.get(head.out_rows);
    let in_range = |&row: &u32| row == NONE || (row as usize) < inputs;
    if fused.stages.len() != 2 || !out_rows.iter().all(in_range) {
        return None;
    }
    let live: Vec<usize> = (0..out_rows.len())
        .filter(|&r| out_rows[r] != NONE)
        .collect();
    let x = memory.get(head.x);
    let weights = Weights::Bf16(memory.get(head.weight));
    let work = live.len().saturating_mul(vocabulary).saturating_mul(k);
    let columns = vocabulary.div_ceil(pool.jobs_for(work)).max(1);
    let jobs: Vec<(Range<usize>, Range<usize>)> = (0..live.len())
        .step_by(TILE_ROWS)
        .flat_map(|row| {
            let rows = row..live.len().min(row + TILE_ROWS);
            let starts = (0..vocabulary).step_by(columns);
            starts.map(move |c| (rows.clone(), c..vocabulary.min(c + columns)))
        })
        .collect();
    let found = pool.map(work, jobs, |(rows, columns)| {
        let inputs = live[rows.clone()]
            .iter()
            .map(|&r| &x[out_rows[r] as usize * k..][..k]);
        search(
            pool.level,
            weights,
            &Input::widen(pool.level, inputs),
            k,
            rows,
            columns,
            fused.keep_intermediates,
        )
    });

    let mut best = vec![None::<Best>; live.len()];
    for found in &found {
        for (best, &new) in best[found.rows.clone()].iter_mut().zip(&found.best) {
            // Columns come in ascending order: an equal one is a later token.
            if best.is_none_or(|old| new.order > old.order) {
                *best = Some(new);
            }
        }
    }
    let tokens = memory.get_mut(choice.tokens);
    tokens.fill(NONE);
    for (&row, best) in live.iter().zip(best) {
        tokens[row] = best.map_or(0, |best| best.token);
    }
    if fused.keep_intermediates {
        let logits = memory.get_mut(head.logits);
        logits.fill(bf16::ZERO);
        for found in found {
            for (columns, strip) in found.strips {
                for (row, strip) in live[found.rows.clone()]
                    .iter()
                    .zip(strip.chunks(columns.len()))
                {
                    logits[row * vocabulary..][columns.clone()].copy_from_slice(strip);
                }
            }
        }
    }
    Some(())
}

fn search(
    level: Level,
    weights: Weights<'_>,
    input: &Input,
    k: usize,
    rows: Range<usize>,
    columns: Range<usize>,
    keep: bool,
) -> Found {
    let lowest = Best {
        order: NAN_ORDER,
        token: columns.start as u32,
    };
    let mut found = Found {
        best: vec![lowest; rows.len()],
        rows,
        strips: Vec::new(),
    };
    let mut strip = Vec::new();
    for start in columns.clone().step_by(STRIP) {
        let at = start..columns.end.min(start + STRIP);
        strip.clear();
        strip.resize(found.best.len() * at.len(), bf16::ZERO);
        let mut out: Vec<&mut [bf16]> = strip.chunks_exact_mut(at.len()).collect();
        project(level, weights, input, k, at.clone(), &mut out);
        for (best, logits) in found.best.iter_mut().zip(strip.chunks_exact(at.len())) {
            for (token, &logit) in at.clone().zip(logits) {
                if order(logit) > best.order {
                    *best = Best {
                        order: order(logit),
                        token: token as u32,
                    };
                }
            }
        }
        if keep {
            found.strips.push((at, strip.clone()));
        }
    }
    found
}
