//! Norms and codes: reductions over a row, one workgroup each.

use super::{LowerError, Lowering};
use crate::module::Kernel;
use layerlet_core::ops::*;

fn offset(offset: WeightOffset) -> f32 {
    match offset {
        WeightOffset::Zero => 0.0,
        WeightOffset::One => 1.0,
    }
}

impl Lowering<'_> {
    pub(super) fn rms_norm(&mut self, op: &RmsNorm) -> Result<(), LowerError> {
        let ([rows, columns], [width]) = (self.dims(op.x)?, self.dims(op.weight)?);
        let kernel = Kernel::new("rms_norm")
            .with("WIDTH", width)
            .with("STRIDE", op.stride)
            .with_f32("EPS", op.eps)
            .with_f32("OFFSET", offset(op.offset));
        let groups = rows * (columns / op.stride);
        let bindings = [op.x.id(), op.weight.id(), op.out.id()];
        self.groups(kernel, bindings, [groups, 0, 0], groups)
    }

    pub(super) fn add_rms_norm(&mut self, op: &AddRmsNorm) -> Result<(), LowerError> {
        let [rows, width] = self.dims(op.x)?;
        if width == 0 {
            return Ok(());
        }
        let kernel = Kernel::new("add_rms_norm")
            .with("WIDTH", width)
            .with_f32("EPS", op.eps)
            .with_f32("OFFSET", offset(op.offset));
        let inputs = [op.x.id(), op.delta.id(), op.weight.id()];
        let [x, delta, weight] = inputs;
        let bindings = [x, delta, weight, op.sum.id(), op.out.id()];
        self.groups(kernel, bindings, [rows, 0, 0], rows)
    }

    pub(super) fn gated_rms_norm(&mut self, op: &GatedRmsNorm) -> Result<(), LowerError> {
        let ([rows, columns], [width]) = (self.dims(op.x)?, self.dims(op.weight)?);
        let kernel = Kernel::new("gated_rms_norm")
            .with("WIDTH", width)
            .with_f32("EPS", op.eps);
        let heads = rows * (columns / width);
        let bindings = [op.x.id(), op.gate.id(), op.weight.id(), op.out.id()];
        self.groups(kernel, bindings, [heads, 0, 0], heads)
    }

    pub(super) fn quantize_rows(&mut self, op: &QuantizeRows) -> Result<(), LowerError> {
        let [rows, k] = self.dims(op.x)?;
        let kernel = Kernel::new("quantize_rows").with("K", k);
        let bindings = [op.x.id(), op.codes.id(), op.scale.id()];
        self.groups(kernel, bindings, [rows, 0, 0], rows)
    }

    pub(super) fn row_absmax(&mut self, op: &RowAbsmax) -> Result<(), LowerError> {
        let [rows, k] = self.dims(op.x)?;
        let kernel = Kernel::new("row_absmax").with("K", k);
        self.groups(kernel, [op.x.id(), op.absmax.id()], [rows, 0, 0], rows)
    }

    pub(super) fn quantize_rows_by(&mut self, op: &QuantizeRowsBy) -> Result<(), LowerError> {
        let [rows, k] = self.dims(op.x)?;
        let kernel = Kernel::new("quantize_rows_by").with("K", k);
        let bindings = [op.x.id(), op.absmax.id(), op.codes.id(), op.scale.id()];
        self.groups(kernel, bindings, [rows, 0, 0], rows)
    }
}
