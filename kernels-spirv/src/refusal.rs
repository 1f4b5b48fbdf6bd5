//! What a launch refuses in its step data, told on the host before anything runs.
//!
//! A kernel does not look whether an index leads anywhere. The host wrote the indices, so it can look: the same checks
//! with the same words as the reference's. Indices that a kernel of ours made (routes) lead somewhere by construction,
//! and a check whose indices are not in step buffers has nothing to look at.

use layerlet_core::NONE;
use layerlet_core::buffer::{Buf, BufferId, BufferTable};
use layerlet_core::launch::{Launch, LaunchError, Operation};
use layerlet_core::ops::*;
use std::collections::BTreeSet;

/// The content of step buffers.
pub trait StepData {
    /// Words of a step buffer; none for any other buffer.
    fn words(&self, buffer: BufferId) -> Option<&[u32]>;
}

/// Refuses a launch whose step data lead nowhere.
pub fn refuse(
    launch: &Launch,
    buffers: &BufferTable,
    step: &dyn StepData,
) -> Result<(), LaunchError> {
    let look = Look { buffers, step };
    // A check without its indices is none.
    look.launch(launch).unwrap_or(Ok(()))
}

struct Look<'a> {
    buffers: &'a BufferTable,
    step: &'a dyn StepData,
}

/// `None` where the indices are not the host's.
type Checked = Option<Result<(), LaunchError>>;

impl<'a> Look<'a> {
    fn launch(&self, launch: &Launch) -> Checked {
        match launch {
            Launch::Embedding(op) => self.embedding(op),
            Launch::GatherRows(op) => {
                self.rows(GatherRows::NAME, op.rows, self.extent(op.x.id(), 0)?)
            }
            Launch::LmHead(op) => self.rows(LmHead::NAME, op.out_rows, self.extent(op.x.id(), 0)?),
            Launch::Rope(op) => self.rope(op),
            Launch::CausalConv1d(op) => {
                let slots = self.extent(op.state.id(), 0)?;
                let indices = [op.seq_rows, op.state_read, op.state_write];
                self.slots(CausalConv1d::NAME, indices, slots)
            }
            Launch::GatedDeltaRule(op) => {
                let slots = self.extent(op.state.id(), 0)?;
                let indices = [op.seq_rows, op.state_read, op.state_write];
                self.slots(GatedDeltaRule::NAME, indices, slots)
            }
            Launch::KvAppend(op) => self.kv_append(op),
            Launch::PagedAttention(op) => self.paged_attention(op),
            Launch::ExpertPrologue(op) => self.expert_prologue(op),
            Launch::GroupedLinearBf16(op) => {
                let rows = self.extent(op.x.id(), 0)?;
                self.routes(
                    GroupedLinearBf16::NAME,
                    op.offsets,
                    op.slot_of_row,
                    op.source,
                    rows,
                )
            }
            Launch::GroupedLinearW8A8(op) => {
                let rows = self.extent(op.codes.id(), 0)?;
                self.routes(
                    GroupedLinearW8A8::NAME,
                    op.offsets,
                    op.slot_of_row,
                    op.source,
                    rows,
                )
            }
            Launch::WeightedGather(op) => self.weighted_gather(op),
            Launch::LocalExperts(op) => self.local_experts(op),
            Launch::ExchangeSlotRows(op) => self.exchange_slot_rows(op),
            Launch::VerifyDrafts(op) => self.verify_drafts(op),
            Launch::Sample(op) => self.history(op),
            Launch::Fused(fused) => Some(
                fused
                    .stages
                    .iter()
                    .try_for_each(|stage| refuse(stage, self.buffers, self.step)),
            ),
            _ => None,
        }
    }

    fn words(&self, buffer: Buf<u32>) -> Option<&'a [u32]> {
        self.step.words(buffer.id())
    }

    fn extent(&self, buffer: BufferId, dimension: usize) -> Option<usize> {
        self.buffers.get(buffer).ok()?.shape.get(dimension).copied()
    }

    fn embedding(&self, op: &Embedding) -> Checked {
        let (ids, seqs) = (self.words(op.token_ids)?, self.words(op.row_seq)?);
        let vocab = self.extent(op.table.id(), 0)?;
        let stray =
            |(_, (id, seq)): &(usize, (&u32, &u32))| **seq != NONE && **id as usize >= vocab;
        Some(match ids.iter().zip(seqs).enumerate().find(stray) {
            None => Ok(()),
            Some((t, (&id, _))) => {
                let expected = format!("below the vocabulary's {vocab}");
                let what = format!("token id of row {t}");
                Err(LaunchError::step_data(Embedding::NAME, what, id, expected))
            }
        })
    }

    fn rows(&self, op: &'static str, rows: Buf<u32>, count: usize) -> Checked {
        let stray = |row: &&u32| **row != NONE && **row as usize >= count;
        Some(match self.words(rows)?.iter().find(stray) {
            None => Ok(()),
            Some(&row) => {
                let expected = format!("below {count}");
                Err(LaunchError::step_data(op, "a row", row, expected))
            }
        })
    }

    fn rope(&self, op: &Rope) -> Checked {
        let positions = self.extent(op.table.id(), 0)?;
        let stray = |(_, position): &(usize, &u32)| **position as usize >= positions;
        Some(
            match self.words(op.positions)?.iter().enumerate().find(stray) {
                None => Ok(()),
                Some((t, &position)) => {
                    let expected = format!("below {positions}, the end of the RoPE table");
                    let what = format!("position of row {t}");
                    Err(LaunchError::step_data(Rope::NAME, what, position, expected))
                }
            },
        )
    }

    fn slots(&self, op: &'static str, indices: [Buf<u32>; 3], slots: usize) -> Checked {
        let [seq_rows, read, write] = indices;
        let (seq_rows, read, write) =
            (self.words(seq_rows)?, self.words(read)?, self.words(write)?);
        Some(StateSlots::new(op, seq_rows, read, write, slots).map(|_| ()))
    }

    fn pages(&self, op: &'static str, table: Buf<u32>, cache: BufferId) -> Option<PageTable<'a>> {
        Some(PageTable {
            op,
            table: self.words(table)?,
            sequences: self.extent(table.id(), 0)?,
            pages_per_sequence: self.extent(table.id(), 1)?,
            page_size: self.extent(cache, 1)?,
            pages: self.extent(cache, 0)?,
        })
    }

    fn kv_append(&self, op: &KvAppend) -> Checked {
        let table = self.pages(KvAppend::NAME, op.page_table, op.k_cache.id())?;
        let rows = self
            .words(op.row_seq)?
            .iter()
            .zip(self.words(op.positions)?);
        let mut taken = BTreeSet::new();
        let place = |(t, (&seq, &position)): (usize, (&u32, &u32))| {
            let Some(sequence) = table.sequence(t, seq)? else {
                return Ok(());
            };
            if taken.insert(table.cache_row(sequence, position)?) {
                return Ok(());
            }
            let what = format!("position of row {t} in sequence {sequence}");
            let expected = "a place that no other row of the step writes";
            Err(LaunchError::step_data(
                KvAppend::NAME,
                what,
                position,
                expected,
            ))
        };
        Some(rows.enumerate().try_for_each(place))
    }

    fn paged_attention(&self, op: &PagedAttention) -> Checked {
        let table = self.pages(PagedAttention::NAME, op.page_table, op.k_cache.id())?;
        let rows = self
            .words(op.row_seq)?
            .iter()
            .zip(self.words(op.positions)?);
        let sees = |(t, (&seq, &position)): (usize, (&u32, &u32))| {
            let Some(sequence) = table.sequence(t, seq)? else {
                return Ok(());
            };
            table.cache_row(sequence, position)?;
            // One look at each page: places in it follow.
            (0..=position)
                .step_by(table.page_size)
                .try_for_each(|p| table.cache_row(sequence, p).map(|_| ()))
        };
        Some(rows.enumerate().try_for_each(sees))
    }

    fn expert_prologue(&self, op: &ExpertPrologue) -> Checked {
        let experts = self.extent(op.offsets.id(), 0)? - 1;
        let stray = |id: &&u32| **id != NONE && **id as usize >= experts;
        Some(match self.words(op.ids)?.iter().find(stray) {
            None => Ok(()),
            Some(&id) => {
                let expected = format!("below {experts}");
                let what = "an expert id";
                Err(LaunchError::step_data(
                    ExpertPrologue::NAME,
                    what,
                    id,
                    expected,
                ))
            }
        })
    }

    fn routes(
        &self,
        op: &'static str,
        offsets: Buf<u32>,
        slots: Buf<u32>,
        source: RowSource,
        rows: usize,
    ) -> Checked {
        let (offsets, slots) = (self.words(offsets)?, self.words(slots)?);
        let walk = || -> Result<(), u32> {
            if let Some(&first) = offsets.first().filter(|&&first| first != 0) {
                return Err(first);
            }
            for range in offsets.windows(2) {
                let (start, end) = (range[0] as usize, range[1] as usize);
                let group = slots.get(start..end).ok_or(range[1])?;
                let stray = |(p, slot): &(usize, &u32)| source.row(*p, **slot) >= rows;
                if let Some((_, &slot)) = (start..end).zip(group).find(stray) {
                    return Err(slot);
                }
            }
            Ok(())
        };
        Some(walk().map_err(|found| {
            let expected = "offsets that ascend from 0 within the step, slots of its tokens";
            LaunchError::step_data(op, "a route", found, expected)
        }))
    }

    fn weighted_gather(&self, op: &WeightedGather) -> Checked {
        let pairs = self.extent(op.y.id(), 0)?;
        let stray = |row: &&u32| **row != NONE && **row as usize >= pairs;
        Some(match self.words(op.row_of_slot)?.iter().find(stray) {
            None => Ok(()),
            Some(&row) => {
                let expected = format!("below {pairs}");
                let what = "an expert row";
                Err(LaunchError::step_data(
                    WeightedGather::NAME,
                    what,
                    row,
                    expected,
                ))
            }
        })
    }

    fn local_experts(&self, op: &LocalExperts) -> Checked {
        let entries = self.extent(op.local_offsets.id(), 0)?;
        let pairs = self.extent(op.slot_of_row.id(), 0)?;
        let offsets = self.words(op.offsets)?.get(op.first..op.first + entries)?;
        let falling = offsets.windows(2).find(|pair| pair[1] < pair[0]);
        let last = offsets.last().filter(|&&end| end as usize > pairs);
        Some(match falling.map(|pair| &pair[1]).or(last) {
            None => Ok(()),
            Some(&found) => {
                let expected = format!("ascending, at most {pairs}");
                let what = "an offset";
                Err(LaunchError::step_data(
                    LocalExperts::NAME,
                    what,
                    found,
                    expected,
                ))
            }
        })
    }

    fn exchange_slot_rows(&self, op: &ExchangeSlotRows) -> Checked {
        let pairs = self.extent(op.x.id(), 0)?;
        let offsets = self.words(op.offsets)?;
        let (start, end) = (*offsets.first()?, *offsets.last()?);
        Some(match end < start || end as usize > pairs {
            false => Ok(()),
            true => {
                let expected = format!("ascending, at most {pairs}");
                let what = "an offset";
                Err(LaunchError::step_data(
                    ExchangeSlotRows::NAME,
                    what,
                    end,
                    expected,
                ))
            }
        })
    }

    /// Tokens are the device's own: that a draft behind a row exists is asked of every row but the last, which the
    /// reference asks only until the first draft that differs.
    fn verify_drafts(&self, op: &VerifyDrafts) -> Checked {
        let (rows, ids) = (self.words(op.out_rows)?, self.extent(op.token_ids.id(), 0)?);
        let walk = |range: &[u32]| -> Result<(), u32> {
            let outs = rows
                .get(range[0] as usize..range[1] as usize)
                .ok_or(range[1])?;
            let drafts = outs.len().saturating_sub(1);
            match outs[..drafts]
                .iter()
                .find(|row| (**row as usize).saturating_add(1) >= ids)
            {
                None => Ok(()),
                Some(&row) => Err(row),
            }
        };
        let outcome = self.words(op.seq_outs)?.windows(2).try_for_each(walk);
        Some(outcome.map_err(|index| {
            LaunchError::step_data(VerifyDrafts::NAME, "an output", index, "a row of this step")
        }))
    }

    fn history(&self, op: &Sample) -> Checked {
        let (rows, history) = (self.words(op.out_rows)?, self.words(op.history)?);
        let (starts, splits) = (
            self.words(op.history_start)?,
            self.words(op.history_generated)?,
        );
        let vocab = self.extent(op.logits.id(), 1)?;
        let row = |row: usize| {
            let (start, end, split) = (starts[row], starts[row + 1], splits[row]);
            let (from, to) = (start as usize, end as usize);
            if split < start || end < split || to > history.len() {
                let expected = "start <= generated <= end, within the buffer";
                let what = "a history bound";
                return Err(LaunchError::step_data(Sample::NAME, what, split, expected));
            }
            match history[from..to].iter().find(|id| **id as usize >= vocab) {
                None => Ok(()),
                Some(&id) => {
                    let expected = format!("below {vocab}");
                    let what = "an id of the history";
                    Err(LaunchError::step_data(Sample::NAME, what, id, expected))
                }
            }
        };
        Some(
            (0..rows.len())
                .filter(|&r| rows[r] != NONE)
                .try_for_each(row),
        )
    }
}
