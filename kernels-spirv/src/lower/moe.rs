//! Routes: from logits to experts, and the pairs grouped by expert.

use super::{LowerError, Lowering, WORKGROUP_MEMORY};
use crate::module::Kernel;
use layerlet_core::launch::Operation;
use layerlet_core::ops::*;

impl Lowering<'_> {
    pub(super) fn router_top_k(&mut self, op: &RouterTopK) -> Result<(), LowerError> {
        let ([rows, experts], [_, k]) = (self.dims(op.logits)?, self.dims(op.ids)?);
        let needed = 4 * (experts + k + 96);
        if needed > WORKGROUP_MEMORY {
            return Err(LowerError::WorkgroupMemory {
                op: RouterTopK::NAME,
                what: "a row of experts",
                needed,
            });
        }
        let kernel = Kernel::new("router_top_k")
            .with("EXPERTS", experts)
            .with("K", k);
        let bindings = [
            op.logits.id(),
            op.row_seq.id(),
            op.ids.id(),
            op.weights.id(),
        ];
        self.groups(kernel, bindings, [rows, 0, 0], rows)
    }

    pub(super) fn expert_prologue(&mut self, op: &ExpertPrologue) -> Result<(), LowerError> {
        let ([pairs], [entries]) = (self.dims(op.slot_of_row)?, self.dims(op.offsets)?);
        let needed = 4 * entries;
        if needed > WORKGROUP_MEMORY {
            return Err(LowerError::WorkgroupMemory {
                op: ExpertPrologue::NAME,
                what: "an offset of each expert",
                needed,
            });
        }
        let kernel = Kernel::new("expert_prologue").with("EXPERTS", entries - 1);
        let maps = [op.slot_of_row.id(), op.row_of_slot.id()];
        let [slot_of_row, row_of_slot] = maps;
        let bindings = [op.ids.id(), op.offsets.id(), slot_of_row, row_of_slot];
        self.groups(kernel, bindings, [pairs, 0, 0], 1)
    }
}
