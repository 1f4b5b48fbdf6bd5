//! Exchanges between ranks, as a rank alone computes them.

use super::{LowerError, Lowering};
use crate::module::Kernel;
use layerlet_core::launch::{LaunchError, Operation};
use layerlet_core::ops::*;

fn alone(op: &'static str, ranks: usize) -> Result<(), LowerError> {
    match ranks {
        1 => Ok(()),
        ranks => {
            Err(LaunchError::parameter(op, "ranks", ranks, "1 where a rank runs alone").into())
        }
    }
}

impl Lowering<'_> {
    pub(super) fn all_reduce_max(&mut self, op: &AllReduceMax) -> Result<(), LowerError> {
        let [rows] = self.dims(op.x)?;
        let kernel = Kernel::new("copy_words").with("MASK", 0x7fff_ffff);
        self.words(kernel, [op.x.id(), op.out.id()], rows, rows)
    }

    pub(super) fn all_reduce_sum(&mut self, op: &AllReduceSum) -> Result<(), LowerError> {
        let [rows, columns] = self.dims(op.x)?;
        let kernel = Kernel::new("copy_words").with("MASK", 0xffff_ffff);
        self.words(
            kernel,
            [op.x.id(), op.out.id()],
            rows * columns,
            rows * columns,
        )
    }

    pub(super) fn all_gather_columns(&mut self, op: &AllGatherColumns) -> Result<(), LowerError> {
        let ([rows, n], [_, part]) = (self.dims(op.out)?, self.dims(op.x)?);
        alone(AllGatherColumns::NAME, n / part)?;
        let words = (rows * n).div_ceil(2);
        let kernel = Kernel::new("copy_words").with("MASK", 0xffff_ffff);
        self.words(kernel, [op.x.id(), op.out.id()], words, words)
    }

    pub(super) fn local_experts(&mut self, op: &LocalExperts) -> Result<(), LowerError> {
        let ([entries], [pairs]) = (self.dims(op.local_offsets)?, self.dims(op.slot_of_row)?);
        let kernel = Kernel::new("local_experts")
            .with("FIRST", op.first)
            .with("LOCAL", entries - 1);
        let own = [op.local_offsets.id(), op.local_slot_of_row.id()];
        let [local_offsets, local_slots] = own;
        let bindings = [
            op.offsets.id(),
            op.slot_of_row.id(),
            local_offsets,
            local_slots,
        ];
        self.words(kernel, bindings, pairs, pairs.max(entries))
    }

    pub(super) fn exchange_slot_rows(&mut self, op: &ExchangeSlotRows) -> Result<(), LowerError> {
        alone(ExchangeSlotRows::NAME, op.ranks)?;
        let ([pairs, width], [entries]) = (self.dims(op.x)?, self.dims(op.offsets)?);
        let kernel = Kernel::new("exchange_slot_rows")
            .with("WIDTH", width)
            .with("EXPERTS", entries - 1);
        let bindings = [op.x.id(), op.offsets.id(), op.out.id()];
        let elements = pairs * width;
        self.words(kernel, bindings, elements, elements.div_ceil(2))
    }
}
