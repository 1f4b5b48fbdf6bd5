//! Appends keys and values to their pages.
//!
//! ```text
//! k_cache[page, p % page_size] = k[t]      v_cache[page, p % page_size] = v[t]
//! p = positions[t]      page = page_table[row_seq[t], p / page_size]
//! ```
//!
//! bf16, a copy. Inert rows write nothing; every other place of the caches keeps its bytes.
//!
//! Errors at run time, before anything is written: a sequence, position or page out of range; two rows
//! that write the same place, as their order would then decide.
//!
//! Source: vLLM `reshape_and_cache`; transformers concatenates instead.

use super::PageTable;
use crate::buffer::{BufferError, BufferTable};
use crate::launch::{LaunchError, Operand, Operation, Traffic, operation};
use crate::memory::Memory;
use crate::numerics::bf16;
use crate::work::Occupancy;
use alloc::{collections::BTreeSet, format, vec::Vec};

operation! {
    /// Writes each live row to the place its position has in the page table.
    pub struct KvAppend {
        /// bf16 `[T, G * D]`
        read k: bf16,
        /// bf16 `[T, G * D]`
        read v: bf16,
        /// u32 `[T]`
        read positions: u32,
        /// u32 `[T]`
        read row_seq: u32,
        /// u32 `[S, pages of a sequence]`
        read page_table: u32,
        /// bf16 `[pages, page size, G, D]`
        read_write k_cache: bf16,
        /// bf16 `[pages, page size, G, D]`
        read_write v_cache: bf16,
        ;
    }
}

impl Operation for KvAppend {
    const NAME: &'static str = "kv_append";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        check_kv_append(self, buffers).map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let [_, columns] = memory.dims(self.k);
        let places = self.places(memory)?;
        for (rows, cache) in [(self.k, self.k_cache), (self.v, self.v_cache)] {
            let mut content = memory.take(cache);
            for (row, place) in memory.get(rows).chunks_exact(columns).zip(&places) {
                if let Some(place) = place {
                    content[place * columns..][..columns].copy_from_slice(row);
                }
            }
            memory.put(cache, content);
        }
        Ok(())
    }

    /// Of the caches, one row of each for each live row.
    fn traffic(&self, buffers: &BufferTable) -> Traffic {
        let rows = buffers.bytes(self.k) + buffers.bytes(self.v);
        let min = rows
            + buffers.bytes(self.positions)
            + buffers.bytes(self.row_seq)
            + buffers.bytes(self.page_table);
        Traffic {
            min,
            max: min + rows,
        }
    }

    fn bytes(&self, buffers: &BufferTable, step: &Occupancy) -> u64 {
        let width = buffers.dims(self.k).map_or(0, |[_, width]| width as u64);
        self.traffic(buffers).min + step.rows * 2 * width * 2
    }
}

impl KvAppend {
    /// By row: its cache row, `None` for an inert row.
    fn places(&self, memory: &Memory<'_>) -> Result<Vec<Option<usize>>, LaunchError> {
        let [pages, page_size, ..] = memory.dims::<_, 4>(self.k_cache);
        let [sequences, pages_per_sequence] = memory.dims(self.page_table);
        let table = PageTable {
            op: Self::NAME,
            table: memory.get(self.page_table),
            sequences,
            pages_per_sequence,
            page_size,
            pages,
        };
        let rows = memory
            .get(self.row_seq)
            .iter()
            .zip(memory.get(self.positions));
        let mut taken = BTreeSet::new();
        rows.enumerate()
            .map(|(t, (&seq, &position))| {
                let Some(sequence) = table.sequence(t, seq)? else {
                    return Ok(None);
                };
                let place = table.cache_row(sequence, position)?;
                if !taken.insert(place) {
                    let what = format!("position of row {t} in sequence {sequence}");
                    let expected = "a place that no other row of the step writes";
                    return Err(LaunchError::step_data(Self::NAME, what, position, expected));
                }
                Ok(Some(place))
            })
            .collect()
    }
}

fn check_kv_append(op: &KvAppend, buffers: &BufferTable) -> Result<(), BufferError> {
    let [pages, page_size, groups, dim] = buffers.dims(op.k_cache)?;
    if page_size == 0 || groups == 0 || dim == 0 {
        return Err(
            buffers.shape_error(op.k_cache, "[pages, page size, G, D], only pages may be 0")
        );
    }
    let [rows] = buffers.dims(op.positions)?;
    let [_, _] = buffers.dims(op.page_table)?;
    buffers.expect(op.v_cache, &[pages, page_size, groups, dim])?;
    buffers.expect(op.k, &[rows, groups * dim])?;
    buffers.expect(op.v, &[rows, groups * dim])?;
    buffers.expect(op.row_seq, &[rows])
}
