//! Mutants from the final rows to the tokens.

use super::{Mutant, misread, mutant};
use layerlet_core::NONE;
use layerlet_core::launch::{LaunchError, Operation};
use layerlet_core::memory::Memory;
use layerlet_core::numerics::{bf16, round_bf16};
use layerlet_core::ops::{Argmax, ConcatColumns, LmHead, VerifyDrafts};

pub const MUTANTS: &[Mutant] = &[
    mutant!(
        "gather_rows",
        "takes row 0 for none",
        GatherRows,
        |op, m, fault| {
            misread(op, m, op.rows, fault, |rows| {
                rows.iter_mut()
                    .filter(|row| **row == NONE)
                    .for_each(|row| *row = 0);
            })
        }
    ),
    mutant!(
        "concat_columns",
        "puts the second part first",
        ConcatColumns,
        concat_columns
    ),
    mutant!(
        "lm_head",
        "takes the rows in order",
        LmHead,
        |op, m, fault| {
            misread(op, m, op.out_rows, fault, |rows| {
                (0..).zip(rows).for_each(|(n, row)| *row = n);
            })
        }
    ),
    mutant!("lm_head", "adds in plain order", LmHead, lm_head),
    mutant!(
        "argmax",
        "takes the last of equal ones",
        Argmax,
        |op, m, fault| {
            argmax(
                op,
                m,
                if fault {
                    |new, old| new >= old
                } else {
                    |new, old| new > old
                },
            )
        }
    ),
    mutant!("argmax", "puts +0 above -0", Argmax, |op, m, fault| {
        let total = |new: f32, old: f32| !new.is_nan() && new.total_cmp(&old).is_gt();
        argmax(op, m, if fault { total } else { |new, old| new > old })
    }),
    mutant!(
        "sample",
        "draws every row with the first row's seed",
        Sample,
        |op, m, fault| {
            misread(op, m, op.seed, fault, |seeds| {
                let first = [seeds[0], seeds[1]];
                seeds
                    .chunks_exact_mut(2)
                    .for_each(|seed| seed.copy_from_slice(&first));
            })
        }
    ),
    mutant!(
        "sample",
        "drops the upper word of the seed",
        Sample,
        |op, m, fault| {
            misread(op, m, op.seed, fault, |seeds| {
                seeds.chunks_exact_mut(2).for_each(|seed| seed[1] = 0);
            })
        }
    ),
    mutant!(
        "sample",
        "counts the prompt as generated",
        Sample,
        |op, m, fault| {
            let starts = m.get(op.history_start).to_vec();
            misread(op, m, op.history_generated, fault, |generated| {
                let rows = generated.len();
                generated.copy_from_slice(&starts[..rows]);
            })
        }
    ),
    mutant!(
        "sample",
        "keeps no first rank under min-p",
        Sample,
        |op, m, fault| { misread(op, m, op.min_p, fault, |min_p| min_p.fill(0.0)) }
    ),
    mutant!(
        "verify_drafts",
        "accepts the first draft that misses",
        VerifyDrafts,
        verify_drafts
    ),
];

fn concat_columns(op: &ConcatColumns, m: &mut Memory<'_>, fault: bool) -> Result<(), LaunchError> {
    op.run(m)?;
    let [_, first] = m.dims(op.a);
    let [_, width] = m.dims(op.out);
    if fault {
        let rows = m.get_mut(op.out).chunks_exact_mut(width);
        rows.for_each(|row| row.rotate_left(first));
    }
    Ok(())
}

fn lm_head(op: &LmHead, m: &mut Memory<'_>, fault: bool) -> Result<(), LaunchError> {
    op.run(m)?;
    if !fault {
        return Ok(());
    }
    let [_, k] = m.dims(op.x);
    let [_, vocab] = m.dims(op.logits);
    let mut logits = m.take(op.logits);
    let rows = m
        .get(op.out_rows)
        .iter()
        .zip(logits.chunks_exact_mut(vocab));
    for (&row, logits) in rows.filter(|(row, _)| **row != NONE) {
        let x = &m.get(op.x)[row as usize * k..][..k];
        for (logit, weight) in logits.iter_mut().zip(m.get(op.weight).chunks_exact(k)) {
            let products = x.iter().zip(weight).map(|(x, w)| x.to_f32() * w.to_f32());
            *logit = round_bf16(products.fold(0.0, |sum, product| sum + product));
        }
    }
    m.put(op.logits, logits);
    Ok(())
}

/// Whether a new logit replaces the largest so far.
type Better = fn(f32, f32) -> bool;

fn argmax(op: &Argmax, m: &mut Memory<'_>, better: Better) -> Result<(), LaunchError> {
    let [_, vocab] = m.dims(op.logits);
    let mut tokens = m.take(op.tokens);
    let rows = m.get(op.logits).chunks_exact(vocab).zip(m.get(op.out_rows));
    for ((logits, &row), token) in rows.zip(&mut tokens) {
        *token = if row == NONE {
            NONE
        } else {
            best(logits, better)
        };
    }
    m.put(op.tokens, tokens);
    Ok(())
}

fn best(logits: &[bf16], better: Better) -> u32 {
    let numbers = (0u32..).zip(logits.iter().map(|l| l.to_f32()));
    let mut best: Option<(u32, f32)> = None;
    for (id, logit) in numbers.filter(|(_, l)| !l.is_nan()) {
        if best.is_none_or(|(_, largest)| better(logit, largest)) {
            best = Some((id, logit));
        }
    }
    best.map_or(0, |(id, _)| id)
}

fn verify_drafts(op: &VerifyDrafts, m: &mut Memory<'_>, fault: bool) -> Result<(), LaunchError> {
    op.run(m)?;
    let bounds = m.get(op.seq_outs).to_vec();
    let accepted = m.get_mut(op.accepted).iter_mut();
    for (n, accepted) in accepted.enumerate().filter(|_| fault) {
        let drafts = (bounds[n + 1] - bounds[n]).saturating_sub(1);
        *accepted = (*accepted + 1).min(drafts);
    }
    Ok(())
}
