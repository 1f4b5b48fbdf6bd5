//! The content of the step buffers, laid out once everything has been checked.

use super::layout::ModelLayout;
use super::step::{Head, SequenceStep, StepError, StepShape};
use super::step_check::{check_counts, check_owners, check_sequence, check_state};
use crate::NONE;
use alloc::{string::String, vec, vec::Vec};

/// The content of a plan's step buffers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepInput {
    pub(super) contents: Vec<(String, Vec<u8>)>,
}

impl StepInput {
    /// Checks a step and lays it out.
    pub fn new(
        layout: &ModelLayout,
        shape: &StepShape,
        sequences: &[SequenceStep<'_>],
    ) -> Result<StepInput, StepError> {
        check_counts(shape, sequences)?;
        for (n, sequence) in sequences.iter().enumerate() {
            check_sequence(layout, shape, n, sequence)?;
            check_state(layout, n, sequence)?;
        }
        check_owners(layout, sequences, 0)?;
        let mut input = StepInput::default();
        input.extend(lay_out(shape, sequences));
        if let Head::Sample { history } = shape.head {
            input.lay_out_sampling(shape, history.max(1), sequences)?;
        }
        Ok(input)
    }

    /// Buffer names and their bytes.
    pub fn buffers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let contents = self.contents.iter();
        contents.map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
    }

    pub(super) fn extend<E: bytemuck::Pod>(
        &mut self,
        contents: impl IntoIterator<Item = (impl Into<String>, Vec<E>)>,
    ) {
        let bytes = |(name, v): (_, Vec<E>)| (Into::into(name), bytemuck::cast_slice(&v).to_vec());
        self.contents.extend(contents.into_iter().map(bytes));
    }
}

pub(super) fn lay_out(
    shape: &StepShape,
    sequences: &[SequenceStep<'_>],
) -> Vec<(&'static str, Vec<u32>)> {
    let (mut token_ids, mut positions, mut row_seq) = (Vec::new(), Vec::new(), Vec::new());
    let (mut seq_rows, mut seq_outs, mut out_rows) = (vec![0u32], vec![0u32], Vec::new());
    let (mut page_table, mut state_read, mut state_write) = (Vec::new(), Vec::new(), Vec::new());
    for (n, s) in sequences.iter().enumerate() {
        let first = token_ids.len();
        token_ids.extend_from_slice(s.tokens);
        positions.extend((s.start..).take(s.tokens.len()));
        row_seq.resize(token_ids.len(), n as u32);
        seq_rows.push(token_ids.len() as u32);
        state_write.resize(token_ids.len(), NONE);
        for &(row, slot) in s.state_writes {
            state_write[first + row] = slot;
        }
        state_read.push(s.state_read.unwrap_or(NONE));
        page_table.extend_from_slice(s.pages);
        page_table.resize((n + 1) * shape.pages_per_sequence, NONE);
        out_rows.extend(s.outputs.iter().map(|row| (first + row) as u32));
        seq_outs.push(out_rows.len() as u32);
    }
    let (rows, outs) = (token_ids.len() as u32, out_rows.len() as u32);
    token_ids.resize(shape.tokens, 0);
    positions.resize(shape.tokens, 0);
    row_seq.resize(shape.tokens, NONE);
    state_write.resize(shape.tokens, NONE);
    seq_rows.resize(shape.sequences + 1, rows);
    seq_outs.resize(shape.sequences + 1, outs);
    state_read.resize(shape.sequences, NONE);
    page_table.resize(shape.sequences * shape.pages_per_sequence, NONE);
    out_rows.resize(shape.outputs, NONE);
    vec![
        ("step.token_ids", token_ids),
        ("step.positions", positions),
        ("step.row_seq", row_seq),
        ("step.seq_rows", seq_rows),
        ("step.page_table", page_table),
        ("step.state_read", state_read),
        ("step.state_write", state_write),
        ("step.out_rows", out_rows),
        ("step.seq_outs", seq_outs),
    ]
}
