//! More mutants from the final rows to the tokens, on kernels written apart.

use super::{Mutant, mutant};
use layerlet_core::NONE;
use layerlet_core::launch::{Launch, LaunchError, Operation};
use layerlet_core::memory::Memory;
use layerlet_core::numerics::{bf16, lane_dot_bf16, round_bf16};
use layerlet_core::ops::{Argmax, ConcatColumns, GatherRows, VerifyDrafts};

pub const MUTANTS: &[Mutant] = &[
    mutant!(
        "gather_rows",
        "takes the last row for one that does not exist",
        GatherRows,
        gather_rows
    ),
    mutant!(
        "concat_columns",
        "steps through b by the width of a",
        ConcatColumns,
        concat_columns
    ),
    mutant!("argmax", "lets a NaN win", Argmax, argmax),
    mutant!(
        "verify_drafts",
        "compares the last output with the next sequence's input",
        VerifyDrafts,
        |op, m, fault| verify_drafts(op, m, fault.then_some(Verify::OneTooFar))
    ),
    mutant!(
        "verify_drafts",
        "counts on after a draft that differs",
        VerifyDrafts,
        |op, m, fault| verify_drafts(op, m, fault.then_some(Verify::CountsAll))
    ),
    Mutant {
        op: "lm_head_argmax",
        fault: "compares the sums before they are rounded to logits",
        kernel: |launch, m, fault| lm_head_argmax(launch, m, fault.then_some(Greedy::Unrounded)),
    },
    Mutant {
        op: "lm_head_argmax",
        fault: "gives ties between tiles of columns to the later tile",
        kernel: |launch, m, fault| lm_head_argmax(launch, m, fault.then_some(Greedy::LaterTile)),
    },
];

fn gather_rows(op: &GatherRows, memory: &mut Memory<'_>, fault: bool) -> Result<(), LaunchError> {
    let [inputs, width] = memory.dims(op.x);
    let (x, rows) = (memory.get(op.x), memory.get(op.rows));
    let mut out = Vec::with_capacity(rows.len() * width);
    for &row in rows {
        match row as usize {
            _ if row == NONE => out.extend(vec![bf16::ZERO; width]),
            at if at < inputs => out.extend_from_slice(&x[at * width..][..width]),
            _ if fault => out.extend_from_slice(&x[(inputs - 1) * width..]),
            _ => {
                let name = GatherRows::NAME;
                return Err(LaunchError::step_data(name, "a row", row, "an input row"));
            }
        }
    }
    memory.get_mut(op.out).copy_from_slice(&out);
    Ok(())
}

fn concat_columns(
    op: &ConcatColumns,
    memory: &mut Memory<'_>,
    fault: bool,
) -> Result<(), LaunchError> {
    let ([_, a_width], [rows, b_width]) = (memory.dims(op.a), memory.dims(op.b));
    let (a, b) = (memory.get(op.a), memory.get(op.b));
    let stride = if fault { a_width.min(b_width) } else { b_width };
    let mut out = Vec::with_capacity(a.len() + b.len());
    for row in 0..rows {
        out.extend_from_slice(&a[row * a_width..][..a_width]);
        out.extend_from_slice(&b[row * stride..][..b_width]);
    }
    memory.get_mut(op.out).copy_from_slice(&out);
    Ok(())
}

fn argmax(op: &Argmax, memory: &mut Memory<'_>, fault: bool) -> Result<(), LaunchError> {
    let mut tokens = memory.take(op.tokens);
    let [_, vocab] = memory.dims(op.logits);
    let rows = memory.get(op.logits).chunks_exact(vocab);
    for ((token, logits), &row) in tokens.iter_mut().zip(rows).zip(memory.get(op.out_rows)) {
        let nan = logits.iter().position(|l| l.to_f32().is_nan());
        *token = match nan.filter(|_| fault) {
            _ if row == NONE => NONE,
            Some(nan) => nan as u32,
            None => largest(logits),
        };
    }
    memory.put(op.tokens, tokens);
    Ok(())
}

/// Index of the largest number, the lowest on ties; 0 if none is a number.
fn largest(logits: &[bf16]) -> u32 {
    let mut numbers: Vec<(u32, f32)> = (0..).zip(logits.iter().map(|l| l.to_f32())).collect();
    numbers.retain(|(_, logit)| !logit.is_nan());
    numbers.sort_by(|(_, a), (_, b)| b.partial_cmp(a).expect("no NaN is left"));
    numbers.first().map_or(0, |(index, _)| *index)
}

#[derive(Clone, Copy, PartialEq)]
enum Verify {
    OneTooFar,
    CountsAll,
}

fn verify_drafts(
    op: &VerifyDrafts,
    memory: &mut Memory<'_>,
    fault: Option<Verify>,
) -> Result<(), LaunchError> {
    let refuse = |index| {
        let name = VerifyDrafts::NAME;
        Err(LaunchError::step_data(name, "an output", index, "a row"))
    };
    let mut accepted = memory.take(op.accepted);
    let (tokens, rows) = (memory.get(op.tokens), memory.get(op.out_rows));
    let inputs = memory.get(op.token_ids);
    let mut outcome = Ok(());
    for (accepted, range) in accepted.iter_mut().zip(memory.get(op.seq_outs).windows(2)) {
        *accepted = 0;
        if range[1] as usize > tokens.len() {
            outcome = refuse(range[1]);
            continue;
        }
        let last = match fault {
            Some(Verify::OneTooFar) => range[1],
            _ => range[1].saturating_sub(1),
        };
        for out in range[0] as usize..last as usize {
            match inputs.get((rows[out] as usize).saturating_add(1)) {
                Some(draft) if *draft == tokens[out] => *accepted += 1,
                Some(_) if fault == Some(Verify::CountsAll) => {}
                Some(_) => break,
                None if fault == Some(Verify::OneTooFar) => break,
                None => outcome = refuse(rows[out]),
            }
        }
    }
    memory.put(op.accepted, accepted);
    outcome
}

#[derive(Clone, Copy, PartialEq)]
enum Greedy {
    Unrounded,
    LaterTile,
}

/// Columns of a tile.
const TILE: usize = 64;

fn lm_head_argmax(
    launch: &Launch,
    memory: &mut Memory<'_>,
    fault: Option<Greedy>,
) -> Result<(), LaunchError> {
    let stages = match launch {
        Launch::Fused(fused) => fused.stages.as_slice(),
        other => std::slice::from_ref(other),
    };
    let [Launch::LmHead(head), Launch::Argmax(choice)] = stages else {
        return launch.run(memory);
    };
    let [vocab, width] = memory.dims(head.weight);
    let rows = memory.get(head.out_rows).to_vec();
    let (mut logits, mut tokens) = (memory.take(head.logits), memory.take(choice.tokens));
    for ((logits, token), row) in logits.chunks_exact_mut(vocab).zip(&mut tokens).zip(rows) {
        logits.fill(bf16::ZERO);
        *token = NONE;
        if row == NONE {
            continue;
        }
        let x = &memory.get(head.x)[row as usize * width..][..width];
        let columns = memory.get(head.weight).chunks_exact(width);
        let sums: Vec<f32> = columns.map(|weight| lane_dot_bf16(x, weight)).collect();
        for (logit, sum) in logits.iter_mut().zip(&sums) {
            *logit = round_bf16(*sum);
        }
        *token = match fault {
            Some(Greedy::Unrounded) => layerlet_core::ops::argmax(sums),
            Some(Greedy::LaterTile) => best_of_tiles(logits),
            None => largest(logits),
        };
    }
    memory.put(head.logits, logits);
    memory.put(choice.tokens, tokens);
    Ok(())
}

fn best_of_tiles(logits: &[bf16]) -> u32 {
    let value = |token: u32| logits[token as usize].to_f32();
    let starts = (0u32..).step_by(TILE).zip(logits.chunks(TILE));
    let best = starts.map(|(start, tile)| start + largest(tile));
    let better = |a, b| if value(b) >= value(a) { b } else { a };
    best.reduce(better).unwrap_or(0)
}
