//! Drafts that equal the target's own tokens.

mod common;

use common::{Bench, Random, assert_refused};
use layerlet_core::NONE;
use layerlet_core::launch::LaunchError;
use layerlet_core::ops::VerifyDrafts;
use proptest::prelude::*;

fn verify(
    tokens: &[u32],
    token_ids: &[u32],
    out_rows: &[u32],
    seq_outs: &[u32],
) -> Result<Vec<u32>, LaunchError> {
    let sequences = seq_outs.len() - 1;
    let mut bench = Bench::default();
    let op = VerifyDrafts {
        tokens: bench.input("tokens", &[tokens.len()], tokens.to_vec()),
        token_ids: bench.input("token_ids", &[token_ids.len()], token_ids.to_vec()),
        out_rows: bench.input("out_rows", &[out_rows.len()], out_rows.to_vec()),
        seq_outs: bench.input("seq_outs", &[sequences + 1], seq_outs.to_vec()),
        accepted: bench.output("accepted", &[sequences]),
    };
    bench.run(op.clone())?;
    Ok(bench.get(op.accepted).to_vec())
}

#[test]
fn by_hand() {
    let check = |tokens: &[u32], fed: &[u32], expect: u32| {
        let rows: Vec<u32> = (0..tokens.len() as u32).collect();
        let found = verify(tokens, fed, &rows, &[0, tokens.len() as u32]);
        assert_eq!(found, Ok(vec![expect]), "{tokens:?} after {fed:?}");
    };
    // Fed the last token 1 and the drafts 5, 6, 7.
    check(&[5, 6, 7, 8], &[1, 5, 6, 7], 3);
    check(&[5, 6, 9, 8], &[1, 5, 6, 7], 2);
    check(&[5, 9, 7, 8], &[1, 5, 6, 7], 1);
    check(&[9, 6, 7, 8], &[1, 5, 6, 7], 0);
    // No drafts; the row behind is another sequence's.
    check(&[5], &[1, 5], 0);
    check(&[5], &[1], 0);
    check(&[], &[1, 5], 0);
}

/// Sequences of every kind side by side: drafts, plain decode, a chunk of a prompt with one output, inert ones.
#[test]
fn each_sequence_reads_its_own_rows() {
    let token_ids = [1, 5, 6, 2, 3, 3, 3, 4, 8, NONE, NONE];
    let out_rows = [0, 1, 2, 3, 6, 7, 8, NONE];
    let tokens = [5, 6, 2, 3, 4, 8, 0, NONE];
    let seq_outs = [0, 3, 4, 5, 5, 7, 7];
    let found = verify(&tokens, &token_ids, &out_rows, &seq_outs);
    assert_eq!(found, Ok(vec![2, 0, 0, 0, 1, 0]));
}

#[test]
fn outputs_that_do_not_exist_are_refused() {
    let check = |out_rows: &[u32], seq_outs: &[u32], found: u32| {
        let refused = verify(&[5, 6], &[1, 5, 6], out_rows, seq_outs);
        assert_refused(
            refused.map(drop),
            &["verify_drafts", "an output", &format!("is {found},")],
        );
    };
    check(&[2, 1], &[0, 2], 2);
    check(&[NONE, 1], &[0, 2], NONE);
    check(&[NONE - 1, 1], &[0, 2], NONE - 1);
    check(&[0, 1], &[0, 3], 3);
    check(&[0, 1], &[2, 1], 1);
    check(&[0, 1], &[0, NONE], NONE);
    // The first of several is named.
    check(&[0, 1], &[0, 7, 9], 7);
}

#[test]
fn shapes_are_refused() {
    let check = |out_rows: &[usize], seq_outs: usize, fragments: &[&str]| {
        let mut bench = Bench::default();
        let op = VerifyDrafts {
            tokens: bench.output("tokens", &[4]),
            token_ids: bench.output("token_ids", &[9]),
            out_rows: bench.output("out_rows", out_rows),
            seq_outs: bench.output("seq_outs", &[seq_outs]),
            accepted: bench.output("accepted", &[2]),
        };
        assert_refused(bench.check(op), fragments);
    };
    check(&[5], 3, &["verify_drafts", "buffer out_rows", "[4]"]);
    check(&[4], 2, &["verify_drafts", "buffer seq_outs", "[3]"]);
    check(&[2, 2], 3, &["buffer out_rows", "[4]"]);
}

/// A target that chooses by its whole context, as a model does.
fn target(context: &[u32]) -> u32 {
    context
        .iter()
        .fold(17u32, |h, &t| h.wrapping_mul(31).wrapping_add(t + 1))
        % 3
}

proptest! {
    /// With every number of drafts and every number of acceptances, the text is the one without drafts.
    #[test]
    fn the_text_is_the_one_without_drafts(sequences in 1usize..5, k in 0usize..7, seed: u64) {
        let random = &mut Random::new(seed);
        let (mut token_ids, mut tokens, mut out_rows, mut seq_outs) = (vec![], vec![], vec![], vec![0]);
        let mut contexts = Vec::new();
        for _ in 0..sequences {
            let mut context: Vec<u32> = (0..1 + random.below(5)).map(|_| random.below(3) as u32).collect();
            contexts.push(context.clone());
            let right = random.below(k + 1);
            for draft in 0..=k {
                out_rows.push(token_ids.len() as u32);
                token_ids.push(*context.last().expect("not empty"));
                tokens.push(target(&context));
                let own = target(&context);
                context.push(if draft < right { own } else { (own + random.below(3) as u32) % 3 });
            }
            seq_outs.push(out_rows.len() as u32);
        }
        let accepted = verify(&tokens, &token_ids, &out_rows, &seq_outs).expect("good rows");
        for (s, (mut context, accepted)) in contexts.into_iter().zip(accepted).enumerate() {
            let first = seq_outs[s] as usize;
            let fed = &token_ids[first + 1..=first + k.max(1) - 1];
            for &token in &tokens[first..=first + accepted as usize] {
                prop_assert_eq!(token, target(&context));
                context.push(token);
            }
            // And no draft that was right is thrown away.
            let drafts = &token_ids[first + 1..first + 1 + k.min(fed.len() + 1)];
            let next = accepted as usize;
            if next < k {
                prop_assert_ne!(drafts.get(next).copied(), Some(tokens[first + next]));
            }
        }
    }
}
