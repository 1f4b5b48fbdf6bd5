//! The draft head: a chain of drafts equals single drafts made one after the other, whatever the chunks before.

mod small_model;

use layerlet_core::numerics::bf16;
use layerlet_core::plan::{MtpShape, SequenceStep, StepInput, mtp};
use small_model::{Model, ids, shape};

/// Hidden states of the main model for a prompt, and the tokens that follow each row.
fn main_model(prompt: &[u32]) -> (Vec<bf16>, Vec<u32>) {
    let mut model = Model::new(16);
    let outputs = [prompt.len() - 1];
    let step = SequenceStep {
        tokens: prompt,
        start: 0,
        pages: &[0, 1, 2],
        state_read: None,
        state_writes: &[],
        outputs: &outputs,
        sampling: None,
    };
    let ran = model.step(&shape(prompt.len(), 1, 1, 3), &[step]);
    let mut following = prompt[1..].to_vec();
    following.push(model.read_u32(&ran, "tokens")[0]);
    (model.read_bf16(&ran, "final_norm"), following)
}

fn draft(
    model: &mut Model,
    drafts: usize,
    step: SequenceStep<'_>,
    hidden: &[bf16],
    spare: usize,
) -> (Vec<u32>, Vec<bf16>) {
    let rows = step.tokens.len();
    let shape = MtpShape {
        step: shape(rows + spare, 1 + spare, 1 + spare, 3),
        drafts,
    };
    let plan = mtp(&model.layout, &shape).unwrap();
    plan.validate().unwrap();
    let input = StepInput::for_mtp(&model.layout, &shape, &[step], hidden).unwrap();
    let ran = model.run(plan, &input);
    let tokens = (0..drafts)
        .map(|n| model.read_u32(&ran, &format!("mtp.{n}.tokens"))[0])
        .collect();
    let last = drafts - 1;
    let all = model.read_bf16(&ran, &format!("mtp.{last}.hidden"));
    let row = if last == 0 { rows - 1 } else { 0 };
    let width = all.len() / if last == 0 { rows + spare } else { 1 + spare };
    (tokens, all[row * width..(row + 1) * width].to_vec())
}

#[test]
fn a_chain_equals_single_drafts() {
    let prompt = ids(30, 1);
    let (hidden, following) = main_model(&prompt);
    let whole = SequenceStep {
        tokens: &following,
        start: 0,
        pages: &[4, 2, 0],
        state_read: None,
        state_writes: &[],
        outputs: &[29],
        sampling: None,
    };
    let (chained, last) = draft(&mut Model::new(16), 4, whole, &hidden, 2);

    let mut model = Model::new(16);
    let first = SequenceStep {
        tokens: &following[..11],
        outputs: &[],
        ..whole
    };
    let shape_first = MtpShape {
        step: shape(11, 1, 1, 3),
        drafts: 1,
    };
    let plan = mtp(&model.layout, &shape_first).unwrap();
    let input =
        StepInput::for_mtp(&model.layout, &shape_first, &[first], &hidden[..11 * 48]).unwrap();
    model.run(plan, &input);
    let rest = SequenceStep {
        tokens: &following[11..],
        start: 11,
        outputs: &[18],
        ..whole
    };
    let (mut tokens, mut h) = draft(&mut model, 1, rest, &hidden[11 * 48..], 0);
    for n in 1..4u32 {
        let token = [tokens[n as usize - 1]];
        let step = SequenceStep {
            tokens: &token,
            start: 29 + n,
            outputs: &[0],
            ..whole
        };
        let (next, hidden) = draft(&mut model, 1, step, &h, 0);
        tokens.extend(next);
        h = hidden;
    }
    assert_eq!(chained, tokens);
    assert!(last == h);
}

#[test]
fn drafts_past_the_pages_are_refused() {
    let model = Model::new(16);
    let tokens = ids(15, 1);
    let hidden = vec![bf16::ZERO; 15 * 48];
    let step = SequenceStep {
        tokens: &tokens,
        start: 0,
        pages: &[0],
        state_read: None,
        state_writes: &[],
        outputs: &[14],
        sampling: None,
    };
    let check = |drafts, step: SequenceStep<'_>| {
        let shape = MtpShape {
            step: shape(15, 1, 1, 3),
            drafts,
        };
        StepInput::for_mtp(&model.layout, &shape, &[step], &hidden)
            .map(|_| ())
            .map_err(|e| e.to_string())
    };
    assert_eq!(check(2, step), Ok(()));
    assert!(
        check(3, step)
            .unwrap_err()
            .contains("the last position of its drafts is 16, expected below 16")
    );
    assert!(
        check(
            1,
            SequenceStep {
                outputs: &[3],
                ..step
            }
        )
        .unwrap_err()
        .contains("the last row, or none")
    );
    assert!(
        check(
            1,
            SequenceStep {
                state_writes: &[(0, 0)],
                ..step
            }
        )
        .unwrap_err()
        .contains("no such state")
    );
}
