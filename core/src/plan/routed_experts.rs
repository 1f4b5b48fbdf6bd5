//! The routed experts of a layer: routes, the experts' linears over grouped rows, the weighted sum.
//!
//! Where ranks hold different experts, each groups all pairs, computes the rows of its own and gets the others' before the
//! sum: from there on it has what one device has.

use super::forward::Builder;
use super::layout::{LinearWeight, MoeBuffers};
use crate::buffer::{Buf, BufferError};
use crate::numerics::bf16;
use crate::ops::*;
use alloc::format;

/// Where token-expert pairs stand once they are grouped.
#[derive(Clone, Copy)]
struct Routes {
    offsets: Buf<u32>,
    slot_of_row: Buf<u32>,
}

impl Builder<'_> {
    /// From the layer's input to the weighted sum of its routed experts.
    pub(super) fn routed_experts(
        &mut self,
        p: &str,
        w: &MoeBuffers,
        h: Buf<bf16>,
    ) -> Result<Buf<bf16>, BufferError> {
        let (t, k) = (self.tokens, self.layout.config().moe.top_k);
        let [logits] = self.linears(h, [(w.gate, &format!("{p}.router_logits"))])?;
        let ids = self.shown(format!("{p}.router_ids"), &[t, k])?;
        let weights = self.shown(format!("{p}.router_weights"), &[t, k])?;
        self.push(RouterTopK {
            logits,
            row_seq: self.step.row_seq,
            ids,
            weights,
        });
        let (routes, row_of_slot) = self.group(p, ids)?;
        let own = self.own_routes(p, routes)?;
        let y = self.expert_rows(p, w, h, own)?;
        let y = self.all_slot_rows(y, routes, &format!("{p}.expert_down.all"))?;
        let out = self.rows(&format!("{p}.routed"), self.layout.config().hidden)?;
        self.push(WeightedGather {
            y,
            row_of_slot,
            weights,
            out,
        });
        Ok(out)
    }

    fn group(&mut self, p: &str, ids: Buf<u32>) -> Result<(Routes, Buf<u32>), BufferError> {
        let experts = self.layout.config().moe.experts;
        let [t, k] = self.plan.buffers.dims(ids)?;
        let offsets = self.buffer(format!("{p}.expert_offsets"), &[experts + 1])?;
        let slot_of_row = self.buffer(format!("{p}.slot_of_row"), &[t * k])?;
        let row_of_slot = self.buffer(format!("{p}.row_of_slot"), &[t * k])?;
        self.push(ExpertPrologue {
            ids,
            offsets,
            slot_of_row,
            row_of_slot,
        });
        let routes = Routes {
            offsets,
            slot_of_row,
        };
        Ok((routes, row_of_slot))
    }

    /// The routes to the experts that this rank holds.
    fn own_routes(&mut self, p: &str, all: Routes) -> Result<Routes, BufferError> {
        let split = self.layout.split();
        if split.expert_ranks() == 1 {
            return Ok(all);
        }
        let experts = split.experts(self.layout.config().moe.experts);
        let [pairs] = self.plan.buffers.dims(all.slot_of_row)?;
        let own = Routes {
            offsets: self.buffer(format!("{p}.expert_offsets.own"), &[experts.len() + 1])?,
            slot_of_row: self.buffer(format!("{p}.slot_of_row.own"), &[pairs])?,
        };
        self.push(LocalExperts {
            offsets: all.offsets,
            slot_of_row: all.slot_of_row,
            local_offsets: own.offsets,
            local_slot_of_row: own.slot_of_row,
            first: experts.start,
        });
        Ok(own)
    }

    /// The rows of all experts; on one device they are there already.
    fn all_slot_rows(
        &mut self,
        x: Buf<bf16>,
        all: Routes,
        name: &str,
    ) -> Result<Buf<bf16>, BufferError> {
        let ranks = self.layout.split().expert_ranks();
        if ranks == 1 {
            return Ok(x);
        }
        let [pairs, width] = self.plan.buffers.dims(x)?;
        let out = self.buffer(name, &[pairs, width])?;
        self.push(ExchangeSlotRows {
            x,
            offsets: all.offsets,
            out,
            ranks,
        });
        Ok(out)
    }

    /// Both projections of the experts, a row for each routed pair.
    fn expert_rows(
        &mut self,
        p: &str,
        w: &MoeBuffers,
        h: Buf<bf16>,
        routes: Routes,
    ) -> Result<Buf<bf16>, BufferError> {
        let config = &self.layout.local().moe;
        let (k, inner) = (config.top_k, config.intermediate);
        let (hidden, cut) = (
            self.layout.config().hidden,
            self.layout.split().expert_column_ranks(),
        );
        let [pairs] = self.plan.buffers.dims(routes.slot_of_row)?;
        let (up, source) = (format!("{p}.expert_gate_up"), RowSource::Token { k });
        let gate_up = self.grouped(&up, w.gate_up, h, routes, source, 2 * inner)?;
        let activated = self.buffer(format!("{p}.expert_silu_mul"), &[pairs, inner])?;
        self.push(SiluMul {
            gate_up,
            out: activated,
        });
        let activated = self.all_columns(activated, cut, &format!("{p}.expert_silu_mul.all"))?;
        let (down, source) = (format!("{p}.expert_down"), RowSource::Row);
        let y = self.grouped(&down, w.down, activated, routes, source, hidden / cut)?;
        self.all_columns(y, cut, &format!("{down}.all"))
    }

    fn grouped(
        &mut self,
        name: &str,
        weight: LinearWeight,
        x: Buf<bf16>,
        routes: Routes,
        source: RowSource,
        width: usize,
    ) -> Result<Buf<bf16>, BufferError> {
        let [pairs] = self.plan.buffers.dims(routes.slot_of_row)?;
        let (offsets, slot_of_row) = (routes.offsets, routes.slot_of_row);
        match weight {
            LinearWeight::Bf16(weight) => {
                let out = self.buffer(name, &[pairs, width])?;
                self.push(GroupedLinearBf16 {
                    x,
                    weight,
                    offsets,
                    slot_of_row,
                    out,
                    source,
                });
                Ok(out)
            }
            LinearWeight::W8A8 {
                weight,
                scale: weight_scale,
            } => {
                let (codes, scale) = self.quantize(x, name)?;
                let out = self.buffer(name, &[pairs, width])?;
                self.push(GroupedLinearW8A8 {
                    codes,
                    scale,
                    weight,
                    weight_scale,
                    offsets,
                    slot_of_row,
                    out,
                    source,
                });
                Ok(out)
            }
        }
    }
}
