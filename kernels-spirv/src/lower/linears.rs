//! Linear layers: sixteen columns of one row a workgroup.

use super::{LowerError, Lowering};
use crate::module::Kernel;
use layerlet_core::ops::*;

/// Columns of a workgroup, as the kernels have it.
const COLUMNS: usize = 16;

fn compiled(name: &'static str, n: usize, k: usize) -> Kernel {
    Kernel::new(name).with("N", n).with("K", k)
}

impl Lowering<'_> {
    pub(super) fn linear_bf16(&mut self, op: &LinearBf16) -> Result<(), LowerError> {
        let ([rows, _], [n, k]) = (self.dims(op.x)?, self.dims(op.weight)?);
        let tiles = n.div_ceil(COLUMNS);
        let bindings = [op.x.id(), op.weight.id(), op.out.id()];
        let kernel = compiled("linear_bf16", n, k);
        self.groups(kernel, bindings, [rows, tiles, 0], rows * tiles)
    }

    pub(super) fn lm_head(&mut self, op: &LmHead) -> Result<(), LowerError> {
        let ([rows], [n, k]) = (self.dims(op.out_rows)?, self.dims(op.weight)?);
        let tiles = n.div_ceil(COLUMNS);
        let bindings = [op.x.id(), op.out_rows.id(), op.weight.id(), op.logits.id()];
        let kernel = compiled("lm_head", n, k);
        self.groups(kernel, bindings, [rows, tiles, 0], rows * tiles)
    }

    pub(super) fn linear_w8a8(&mut self, op: &LinearW8A8) -> Result<(), LowerError> {
        let ([rows, _], [n, k]) = (self.dims(op.codes)?, self.dims(op.weight)?);
        let tiles = n.div_ceil(COLUMNS);
        let weights = [op.weight.id(), op.weight_scale.id()];
        let [weight, weight_scale] = weights;
        let bindings = [
            op.codes.id(),
            op.scale.id(),
            weight,
            weight_scale,
            op.out.id(),
        ];
        let kernel = compiled("linear_w8a8", n, k);
        self.groups(kernel, bindings, [rows, tiles, 0], rows * tiles)
    }

    pub(super) fn linear_w8a8_partial(&mut self, op: &LinearW8A8Partial) -> Result<(), LowerError> {
        let ([rows, _], [n, k]) = (self.dims(op.codes)?, self.dims(op.weight)?);
        let tiles = n.div_ceil(COLUMNS);
        let bindings = [op.codes.id(), op.weight.id(), op.acc.id()];
        let kernel = compiled("linear_w8a8_partial", n, k);
        self.groups(kernel, bindings, [rows, tiles, 0], rows * tiles)
    }

    pub(super) fn grouped_linear_bf16(&mut self, op: &GroupedLinearBf16) -> Result<(), LowerError> {
        let ([pairs], [experts, n, k]) = (self.dims(op.slot_of_row)?, self.dims(op.weight)?);
        let tiles = n.div_ceil(COLUMNS);
        let kernel = compiled("grouped_linear_bf16", n, k)
            .with("EXPERTS", experts)
            .with("FAN_OUT", fan_out(op.source));
        let routes = [op.offsets.id(), op.slot_of_row.id()];
        let [offsets, slot_of_row] = routes;
        let bindings = [op.x.id(), op.weight.id(), offsets, slot_of_row, op.out.id()];
        self.groups(kernel, bindings, [pairs, tiles, 0], pairs * tiles)
    }

    pub(super) fn grouped_linear_w8a8(&mut self, op: &GroupedLinearW8A8) -> Result<(), LowerError> {
        let ([pairs], [experts, n, k]) = (self.dims(op.slot_of_row)?, self.dims(op.weight)?);
        let tiles = n.div_ceil(COLUMNS);
        let kernel = compiled("grouped_linear_w8a8", n, k)
            .with("EXPERTS", experts)
            .with("FAN_OUT", fan_out(op.source));
        let bindings = [
            op.codes.id(),
            op.scale.id(),
            op.weight.id(),
            op.weight_scale.id(),
            op.offsets.id(),
            op.slot_of_row.id(),
            op.out.id(),
        ];
        self.groups(kernel, bindings, [pairs, tiles, 0], pairs * tiles)
    }
}

/// Pairs of a token where the input has one row a token, 0 where it has one a pair.
fn fan_out(source: RowSource) -> usize {
    match source {
        RowSource::Token { k } => k,
        RowSource::Row => 0,
    }
}
