//! Greedy head: fast because the logits of a few hundred tokens live in a buffer of the thread just
//! long enough to be compared with the best so far.

use super::stages::find;
use crate::arena::zeros;
use crate::argmax::{NAN_ORDER, order};
use crate::linear::{Input, TILE_ROWS, Weights, project, tile_rows};
use crate::pool::Pool;
use layerlet_core::NONE;
use layerlet_core::launch::Fused;
use layerlet_core::memory::Memory;
use layerlet_core::numerics::bf16;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Columns whose logits are compared at once.
const STRIP: usize = 256;

/// The best logit of a row in some columns, in argmax's order, and its token.
#[derive(Clone, Copy)]
struct Best {
    order: i16,
    token: u32,
}

/// Some rows in some columns, and what was found there.
struct Job<'b> {
    rows: Range<usize>,
    columns: Range<usize>,
    best: &'b mut [Best],
}

/// What a thread has to itself.
struct Own<'b> {
    input: Input<'b>,
    /// Logits of a strip, row by row.
    strip: &'b mut [bf16],
}

/// A strip of logits that is to be kept.
struct Kept {
    rows: Range<usize>,
    columns: Range<usize>,
    logits: Vec<bf16>,
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
    let live = pool.list((0..out_rows.len()).filter(|&r| out_rows[r] != NONE));
    let (live, x) = (&*live, memory.get(head.x));
    let weights = Weights::Bf16(memory.get(head.weight));
    let work = live.len().saturating_mul(vocabulary).saturating_mul(k);
    let columns = vocabulary.div_ceil(pool.jobs_for(work)).max(1);
    let jobs = pool.list(jobs(pool, live.len(), vocabulary, columns));
    let rows = tile_rows(live.len());
    let room = || Own {
        input: Input::room(pool, weights.form(), rows, k),
        strip: zeros(pool.arena(), rows * STRIP),
    };
    let kept = Mutex::new(Vec::new());
    pool.each_with(work, jobs, room, |job, own| {
        own.input.clear();
        for &r in &live[job.rows.clone()] {
            own.input.push(&x[out_rows[r] as usize * k..][..k]);
        }
        let rows = job.rows.clone();
        search(weights, job, own, |columns, logits| {
            if fused.keep_intermediates {
                let (rows, logits) = (rows.clone(), logits.to_vec());
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push(Kept {
                    rows,
                    columns,
                    logits,
                });
            }
        });
    });

    let best = pool.list(live.iter().map(|_| None::<Best>));
    for job in jobs.iter() {
        for (best, &new) in best[job.rows.clone()].iter_mut().zip(&*job.best) {
            // Columns come in ascending order: an equal one is a later token.
            if best.is_none_or(|old| new.order > old.order) {
                *best = Some(new);
            }
        }
    }
    let tokens = memory.take(choice.tokens);
    let tokens = choose(tokens, live, best);
    memory.put(choice.tokens, tokens);
    if fused.keep_intermediates {
        let live = live.to_vec();
        let logits = memory.get_mut(head.logits);
        logits.fill(bf16::ZERO);
        for kept in kept.into_inner().unwrap_or_else(PoisonError::into_inner) {
            let strips = kept.logits.chunks_exact(kept.columns.len());
            for (row, strip) in live[kept.rows].iter().zip(strips) {
                logits[row * vocabulary..][kept.columns.clone()].copy_from_slice(strip);
            }
        }
    }
    Some(())
}

fn choose(mut tokens: Vec<u32>, live: &[usize], best: &[Option<Best>]) -> Vec<u32> {
    tokens.fill(NONE);
    for (&row, best) in live.iter().zip(best) {
        tokens[row] = best.map_or(0, |best| best.token);
    }
    tokens
}

/// Rows in tiles, columns so many at a time, ascending.
fn jobs(
    pool: &Pool,
    rows: usize,
    vocabulary: usize,
    columns: usize,
) -> impl Iterator<Item = Job<'_>> {
    (0..rows).step_by(TILE_ROWS).flat_map(move |row| {
        let rows = row..rows.min(row + TILE_ROWS);
        (0..vocabulary).step_by(columns).map(move |column| {
            let lowest = Best {
                order: NAN_ORDER,
                token: column as u32,
            };
            Job {
                rows: rows.clone(),
                columns: column..vocabulary.min(column + columns),
                best: pool.arena().alloc_slice_fill_copy(rows.len(), lowest),
            }
        })
    })
}

/// Finds the best of each row; `keep` sees every strip of logits.
fn search(
    weights: Weights<'_>,
    job: &mut Job<'_>,
    own: &mut Own<'_>,
    keep: impl Fn(Range<usize>, &[bf16]),
) {
    for start in job.columns.clone().step_by(STRIP) {
        let at = start..job.columns.end.min(start + STRIP);
        let strip = &mut own.strip[..job.best.len() * at.len()];
        let mut rows: [&mut [bf16]; TILE_ROWS] = std::array::from_fn(|_| Default::default());
        for (row, part) in rows.iter_mut().zip(strip.chunks_exact_mut(at.len())) {
            *row = part;
        }
        project(
            weights,
            &mut own.input,
            at.clone(),
            &mut rows[..job.best.len()],
        );
        for (best, logits) in job.best.iter_mut().zip(strip.chunks_exact(at.len())) {
            for (token, &logit) in at.clone().zip(logits) {
                if order(logit) > best.order {
                    *best = Best {
                        order: order(logit),
                        token: token as u32,
                    };
                }
            }
        }
        keep(at, strip);
    }
}
