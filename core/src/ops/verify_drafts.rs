//! Accepts drafts that equal the target's own tokens.
//!
//! The rows of a sequence were fed `x_0, d_1, d_2, ..`: its last token, then drafts. `tokens[r]` is what the target itself
//! chooses after row `r`. Draft `d_1` is accepted if it equals the target's choice after `x_0`, `d_2` if also the choice
//! after `d_1`, and so on until the first that differs:
//!
//! ```text
//! accepted[s] = length of the longest run, from the first output on, with tokens[i] == token_ids[out_rows[i] + 1]
//! ```
//!
//! The sequence then continues with `tokens[0..=accepted]`: the accepted drafts and one token more. Since each is the
//! target's own choice, drawn with the position's own random bits, the text is the one without drafts. Sequences
//! without outputs, and inert ones, get 0.
//!
//! u32 throughout. The last output of a sequence has no draft behind it and is never compared; what stands after the
//! first draft that differs is not either. The outputs of a sequence that verifies are consecutive rows: the host
//! lays them out so.
//!
//! Errors: an output range, or a row it names, that does not exist is refused when it runs.
//!
//! Source and choice: the acceptance of speculative decoding at temperature 0, for every temperature. vLLM's rejection
//! sampling keeps the distribution; drawing the target's own token keeps the very tokens.

use crate::buffer::{BufferError, BufferTable};
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use alloc::vec::Vec;

operation! {
    /// Number of drafts of each sequence that the target would have drawn itself.
    pub struct VerifyDrafts {
        /// u32 `[R]`: the target's own token after each row
        read tokens: u32,
        /// u32 `[T]`: the step's input; a draft is the input of the next row
        read token_ids: u32,
        /// u32 `[R]`
        read out_rows: u32,
        /// u32 `[S + 1]`: outputs of sequence `s`, its rows in order
        read seq_outs: u32,
        /// u32 `[S]`
        write accepted: u32,
        ;
    }
}

impl Operation for VerifyDrafts {
    const NAME: &'static str = "verify_drafts";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        let check = || -> Result<(), BufferError> {
            let [r] = buffers.dims(self.tokens)?;
            let [_] = buffers.dims(self.token_ids)?;
            buffers.expect(self.out_rows, &[r])?;
            let [s] = buffers.dims(self.accepted)?;
            buffers.expect(self.seq_outs, &[s + 1])
        };
        check().map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let mut accepted = memory.take(self.accepted);
        let tokens = memory.get(self.tokens);
        let (token_ids, out_rows) = (memory.get(self.token_ids), memory.get(self.out_rows));
        let ranges = memory.get(self.seq_outs).windows(2);
        let mut outcome = Ok(());
        for (accepted, range) in accepted.iter_mut().zip(ranges) {
            let outs = range[0] as usize..range[1] as usize;
            let drafts = tokens.get(outs.clone()).zip(out_rows.get(outs));
            let count = drafts.ok_or(range[1]);
            match count.and_then(|(tokens, rows)| accepted_drafts(tokens, rows, token_ids)) {
                Ok(count) => *accepted = count,
                Err(index) => outcome = outcome.and(Err(index)),
            }
        }
        memory.put(self.accepted, accepted);
        outcome.map_err(|index| {
            LaunchError::step_data(Self::NAME, "an output", index, "a row of this step")
        })
    }
}

/// Accepted drafts of one sequence; a row that does not exist is the error.
pub fn accepted_drafts(tokens: &[u32], rows: &[u32], token_ids: &[u32]) -> Result<u32, u32> {
    let mut accepted = 0;
    // The last output has no draft behind it.
    for (&token, &row) in tokens.iter().zip(rows).take(tokens.len().saturating_sub(1)) {
        let next = (row as usize).checked_add(1);
        let draft = next.and_then(|next| token_ids.get(next)).ok_or(row)?;
        if *draft != token {
            break;
        }
        accepted += 1;
    }
    Ok(accepted)
}
