//! Nothing but its own tokens changes the bytes of a sequence: not chunks, company, slots, pages, buckets, drafts or
//! what a slot held before.

mod small_model;

use layerlet_core::plan::{SequenceStep, StepError, StepInput};
use small_model::{Model, SLOTS, VOCAB, ids, shape};

/// One sequence's way through steps: everything that must not matter.
#[derive(Clone, Debug)]
struct Way {
    chunks: Vec<usize>,
    page_size: usize,
    first_page: u32,
    slots: [u32; 2],
    spare_rows: usize,
}

/// Logits of all rows, and the state at the end.
fn walk(model: &mut Model, tokens: &[u32], way: &Way) -> (Vec<u8>, Vec<u8>) {
    let needed = tokens.len().div_ceil(way.page_size) as u32;
    // Descending pages: logical order is not physical order.
    let pages: Vec<u32> = (0..needed)
        .map(|p| way.first_page + needed - 1 - p)
        .collect();
    let (mut start, mut logits, mut slot) = (0, Vec::new(), None);
    for (n, &count) in way.chunks.iter().enumerate() {
        let outputs: Vec<usize> = (0..count).collect();
        let write = way.slots[n % 2];
        let step = SequenceStep {
            tokens: &tokens[start..start + count],
            start: start as u32,
            pages: &pages,
            state_read: slot,
            state_writes: &[(count - 1, write)],
            outputs: &outputs,
            sampling: None,
        };
        let shape = shape(
            count + way.spare_rows,
            1 + way.spare_rows,
            count,
            pages.len(),
        );
        let ran = model.step(&shape, &[step]);
        logits.extend(model.read(&ran, "logits"));
        (start, slot) = (start + count, Some(write));
    }
    assert_eq!(start, tokens.len());
    (logits, model.slot(slot.unwrap()))
}

fn plain(page_size: usize, chunks: Vec<usize>) -> Way {
    Way {
        chunks,
        page_size,
        first_page: 0,
        slots: [0, 0],
        spare_rows: 0,
    }
}

#[test]
fn chunks_slots_pages_and_buckets_do_not_show() {
    let tokens = ids(200, 1);
    let expected = walk(&mut Model::new(16), &tokens, &plain(16, vec![200]));
    let rows: std::collections::HashSet<&[u8]> = expected.0.chunks_exact(VOCAB * 2).collect();
    assert!(rows.len() > 190, "logits hardly depend on the input");
    let splits: [Vec<usize>; 5] = [
        vec![1; 200],
        vec![199, 1],
        vec![64, 64, 64, 8],
        vec![63, 1, 1, 63, 72],
        vec![3, 100, 1, 1, 1, 94],
    ];
    for (n, chunks) in splits.into_iter().enumerate() {
        let page_size = [1, 3, 16, 64, 100][n];
        let way = Way {
            chunks,
            page_size,
            first_page: 1,
            slots: [n as u32, 7],
            spare_rows: n,
        };
        let mut model = Model::new(page_size);
        assert!(walk(&mut model, &tokens, &way) == expected, "{way:?}");
    }
}

/// Case 18: a slot and pages that another sequence left behind.
#[test]
fn what_a_slot_held_before_does_not_show() {
    let mut model = Model::new(16);
    let (a, b) = (ids(90, 2), ids(80, 3));
    let way = plain(16, vec![50, 30]);
    let expected = walk(&mut Model::new(16), &b, &way);
    walk(&mut model, &a, &plain(16, vec![90]));
    assert!(walk(&mut model, &b, &way) == expected);
}

/// Case 18: preempted, its slot used by others, resumed from a saved copy of the slot.
#[test]
fn preempt_and_resume_equals_uninterrupted() {
    let tokens = ids(70, 4);
    let pages: Vec<u32> = (0..5).collect();
    let run = |interrupt: bool| {
        let mut model = Model::new(16);
        let first = |slot| SequenceStep {
            tokens: &tokens[..40],
            start: 0,
            pages: &pages,
            state_read: None,
            state_writes: slot,
            outputs: &[39],
            sampling: None,
        };
        model.step(&shape(40, 1, 1, 5), &[first(&[(39, 3)])]);
        let mut read = 3;
        if interrupt {
            // The state waits in another slot while a stranger takes this one.
            let kept = first(&[(39, 8)]);
            model.step(&shape(40, 1, 1, 5), &[kept]);
            let stranger = ids(30, 5);
            let step = SequenceStep {
                tokens: &stranger,
                pages: &[20, 21],
                state_writes: &[(29, 3)],
                outputs: &[29],
                ..first(&[])
            };
            model.step(&shape(30, 1, 1, 2), &[step]);
            read = 8;
        }
        let rest = SequenceStep {
            tokens: &tokens[40..],
            start: 40,
            state_read: Some(read),
            state_writes: &[(29, 5)],
            outputs: &[29],
            ..first(&[])
        };
        let ran = model.step(&shape(30, 1, 1, 5), &[rest]);
        (model.read(&ran, "logits"), model.slot(5))
    };
    assert!(run(true) == run(false));
}

/// Case 20: prefill, decode and verification rows side by side.
#[test]
fn company_does_not_show() {
    let mut alone = Vec::new();
    let texts = [ids(60, 6), ids(33, 7), ids(21, 8)];
    let splits = [(0usize, 60usize), (32, 1), (17, 4)];
    for (n, tokens) in texts.iter().enumerate() {
        alone.push(together(&[(n, tokens, splits[n])]).remove(0));
    }
    let members: Vec<_> = (0..3).map(|n| (n, &texts[n], splits[n])).collect();
    assert!(together(&members) == alone);
    let turned: Vec<_> = members.iter().rev().copied().collect();
    let mut reversed = together(&turned);
    reversed.reverse();
    assert!(reversed == alone);
}

type Member<'a> = (usize, &'a Vec<u32>, (usize, usize));

/// Brings each sequence to its start alone, then runs their next rows in one step.
fn together(members: &[Member<'_>]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut model = Model::new(16);
    let pages: Vec<Vec<u32>> = members
        .iter()
        .map(|(n, ..)| (*n as u32 * 5..*n as u32 * 5 + 4).collect())
        .collect();
    let mut steps = Vec::new();
    let all: Vec<usize> = (0..60).collect();
    let writes: Vec<[(usize, u32); 1]> = members
        .iter()
        .map(|(n, _, (_, count))| [(count - 1, *n as u32)])
        .collect();
    let reached: Vec<[(usize, u32); 1]> = members
        .iter()
        .map(|(n, _, (start, _))| [(start.saturating_sub(1), *n as u32)])
        .collect();
    for (i, &(n, tokens, (start, count))) in members.iter().enumerate() {
        let fresh = SequenceStep {
            tokens: &tokens[..start],
            start: 0,
            pages: &pages[i],
            state_read: None,
            state_writes: &reached[i],
            outputs: &[0],
            sampling: None,
        };
        if start > 0 {
            model.step(&shape(start, 1, 1, 4), &[fresh]);
        }
        steps.push(SequenceStep {
            tokens: &tokens[start..start + count],
            start: start as u32,
            state_read: (start > 0).then_some(n as u32),
            state_writes: &writes[i],
            outputs: &all[..count],
            ..fresh
        });
    }
    let rows: usize = members.iter().map(|(_, _, (_, count))| count).sum();
    let ran = model.step(&shape(rows + 3, 4, rows, 4), &steps);
    let logits = model.read(&ran, "logits");
    let mut at = 0;
    members
        .iter()
        .map(|&(n, _, (_, count))| {
            let mine = logits[at * VOCAB * 2..(at + count) * VOCAB * 2].to_vec();
            at += count;
            (mine, model.slot(n as u32))
        })
        .collect()
}

/// Case 21: after K drafts of which some were accepted, slots and the next step are those of plain decoding.
#[test]
fn rejected_drafts_leave_no_trace() {
    let prompt = ids(20, 9);
    let pages: Vec<u32> = (0..4).collect();
    let prefill = |model: &mut Model| -> u32 {
        let step = SequenceStep {
            tokens: &prompt,
            start: 0,
            pages: &pages,
            state_read: None,
            state_writes: &[(19, 0)],
            outputs: &[19],
            sampling: None,
        };
        let ran = model.step(&shape(20, 1, 1, 4), &[step]);
        model.read_u32(&ran, "tokens")[0]
    };
    // Plain decoding: the token after each position, the state after each row.
    let mut plain = Model::new(16);
    let mut text = vec![prefill(&mut plain)];
    let mut states = Vec::new();
    for n in 0..10usize {
        let step = SequenceStep {
            tokens: &text[n..=n],
            start: 20 + n as u32,
            pages: &pages,
            state_read: Some(0),
            state_writes: &[(0, 0)],
            outputs: &[0],
            sampling: None,
        };
        let ran = plain.step(&shape(1, 1, 1, 4), &[step]);
        text.push(plain.read_u32(&ran, "tokens")[0]);
        states.push(plain.slot(0));
    }
    for k in 1..=8usize {
        for accepted in 0..=k {
            let mut model = Model::new(16);
            prefill(&mut model);
            let mut rows = text[..=k].to_vec();
            if accepted < k {
                rows[accepted + 1] = (rows[accepted + 1] + 1) % VOCAB as u32;
            }
            let writes: Vec<(usize, u32)> = (0..=k).map(|row| (row, row as u32 + 1)).collect();
            let outputs: Vec<usize> = (0..=k).collect();
            let step = SequenceStep {
                tokens: &rows,
                start: 20,
                pages: &pages,
                state_read: Some(0),
                state_writes: &writes,
                outputs: &outputs,
                sampling: None,
            };
            let verifying = layerlet_core::plan::StepShape {
                verify: true,
                ..shape(k + 1, 2, k + 1, 4)
            };
            let ran = model.step(&verifying, &[step]);
            assert_eq!(
                model.read_u32(&ran, "accepted"),
                [accepted as u32, 0],
                "K = {k}"
            );
            let slot = accepted as u32 + 1;
            assert!(
                model.slot(slot) == states[accepted],
                "K = {k}, {accepted} accepted"
            );
            // The next plain step from the committed slot, over keys that rejected drafts wrote.
            let next = SequenceStep {
                tokens: &text[accepted + 1..accepted + 2],
                start: 21 + accepted as u32,
                state_read: Some(slot),
                state_writes: &[(0, 11)],
                outputs: &[0],
                ..step
            };
            let ran = model.step(&shape(1, 1, 1, 4), &[next]);
            assert_eq!(model.read_u32(&ran, "tokens")[0], text[accepted + 2]);
            assert!(model.slot(11) == states[accepted + 1]);
        }
    }
}

#[test]
fn the_host_refuses_what_would_mix_sequences() {
    let model = Model::new(16);
    let tokens = ids(3, 1);
    let base = SequenceStep {
        tokens: &tokens,
        start: 0,
        pages: &[0],
        state_read: None,
        state_writes: &[(2, 0)],
        outputs: &[2],
        sampling: None,
    };
    let check = |sequences: &[SequenceStep<'_>], expected: &str| {
        let refused = StepInput::new(&model.layout, &shape(8, 2, 2, 2), sequences).unwrap_err();
        assert!(refused.to_string().contains(expected), "{refused}");
        refused
    };
    let other = SequenceStep {
        pages: &[1],
        state_writes: &[(2, 1)],
        ..base
    };
    assert!(StepInput::new(&model.layout, &shape(8, 2, 2, 2), &[base, other]).is_ok());
    let shared = check(
        &[
            base,
            SequenceStep {
                pages: &[0],
                ..other
            },
        ],
        "page 0 is used by sequences 0 and 1",
    );
    assert!(matches!(shared, StepError::Shared { .. }));
    check(
        &[
            base,
            SequenceStep {
                state_writes: &[(2, 0)],
                ..other
            },
        ],
        "state slot 0",
    );
    check(
        &[
            SequenceStep {
                start: 3,
                state_read: Some(4),
                ..base
            },
            SequenceStep {
                state_writes: &[(0, 4)],
                ..other
            },
        ],
        "state slot 4",
    );
    check(
        &[SequenceStep {
            tokens: &[91],
            state_writes: &[],
            outputs: &[],
            ..base
        }],
        "the token id of row 0 is 91, expected below the vocabulary's 91",
    );
    check(
        &[SequenceStep {
            tokens: &[],
            ..base
        }],
        "at least 1",
    );
    check(
        &[SequenceStep { pages: &[], ..base }],
        "its number of pages is 0, expected 1 to 2",
    );
    check(
        &[SequenceStep {
            pages: &[25],
            ..base
        }],
        "a page is 25",
    );
    check(
        &[SequenceStep {
            state_writes: &[(2, SLOTS as u32)],
            ..base
        }],
        "a state slot is 12",
    );
    check(
        &[SequenceStep {
            state_read: Some(1),
            ..base
        }],
        "its first position is 0",
    );
    check(
        &[SequenceStep { start: 5, ..base }],
        "its first position is 5",
    );
    check(
        &[SequenceStep {
            outputs: &[3],
            ..base
        }],
        "an output row is 3",
    );
    check(
        &[SequenceStep {
            outputs: &[2, 2],
            ..base
        }],
        "an output row is 2, expected above 2",
    );
    check(
        &[SequenceStep {
            start: 299,
            state_read: Some(1),
            ..base
        }],
        "its last position is 301",
    );
    check(&[base, base, base], "3 sequences, its plan holds 2");
}
