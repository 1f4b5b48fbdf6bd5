//! Operations whose outputs are computed word by word.

use super::{LowerError, Lowering};
use crate::module::Kernel;
use layerlet_core::ops::*;

impl Lowering<'_> {
    pub(super) fn embedding(&mut self, op: &Embedding) -> Result<(), LowerError> {
        let [rows, width] = self.dims(op.out)?;
        let kernel = Kernel::new("embedding").with("WIDTH", width);
        let bindings = [
            op.token_ids.id(),
            op.row_seq.id(),
            op.table.id(),
            op.out.id(),
        ];
        self.words(kernel, bindings, rows * width, (rows * width).div_ceil(2))
    }

    pub(super) fn gather_rows(&mut self, op: &GatherRows) -> Result<(), LowerError> {
        let [rows, width] = self.dims(op.out)?;
        let kernel = Kernel::new("gather_rows").with("WIDTH", width);
        let bindings = [op.x.id(), op.rows.id(), op.out.id()];
        self.words(kernel, bindings, rows * width, (rows * width).div_ceil(2))
    }

    pub(super) fn concat_columns(&mut self, op: &ConcatColumns) -> Result<(), LowerError> {
        let ([rows, a], [_, b]) = (self.dims(op.a)?, self.dims(op.b)?);
        let kernel = Kernel::new("concat_columns").with("A", a).with("B", b);
        let elements = rows * (a + b);
        let bindings = [op.a.id(), op.b.id(), op.out.id()];
        self.words(kernel, bindings, elements, elements.div_ceil(2))
    }

    pub(super) fn silu_mul(&mut self, op: &SiluMul) -> Result<(), LowerError> {
        let [rows, width] = self.dims(op.out)?;
        let kernel = Kernel::new("silu_mul").with("WIDTH", width);
        let bindings = [op.gate_up.id(), op.out.id()];
        self.words(kernel, bindings, rows * width, (rows * width).div_ceil(2))
    }

    pub(super) fn shared_expert(&mut self, op: &SharedExpert) -> Result<(), LowerError> {
        let [rows, width] = self.dims(op.out)?;
        let kernel = Kernel::new("shared_expert").with("WIDTH", width);
        let bindings = [op.shared.id(), op.gate.id(), op.routed.id(), op.out.id()];
        self.words(kernel, bindings, rows * width, (rows * width).div_ceil(2))
    }

    pub(super) fn weighted_gather(&mut self, op: &WeightedGather) -> Result<(), LowerError> {
        let ([rows, width], [_, k]) = (self.dims(op.out)?, self.dims(op.weights)?);
        let kernel = Kernel::new("weighted_gather")
            .with("WIDTH", width)
            .with("K", k);
        let bindings = [op.y.id(), op.row_of_slot.id(), op.weights.id(), op.out.id()];
        self.words(kernel, bindings, rows * width, (rows * width).div_ceil(2))
    }

    pub(super) fn dequantize(&mut self, op: &Dequantize) -> Result<(), LowerError> {
        let [rows, n] = self.dims(op.acc)?;
        let kernel = Kernel::new("dequantize").with("N", n);
        let bindings = [
            op.acc.id(),
            op.scale.id(),
            op.weight_scale.id(),
            op.out.id(),
        ];
        self.words(kernel, bindings, rows * n, (rows * n).div_ceil(2))
    }

    pub(super) fn rope(&mut self, op: &Rope) -> Result<(), LowerError> {
        let ([rows, columns], [_, _, half]) = (self.dims(op.x)?, self.dims(op.table)?);
        let kernel = Kernel::new("rope")
            .with("COLUMNS", columns)
            .with("HEAD_DIM", op.head_dim)
            .with("HALF", half);
        let bindings = [op.x.id(), op.positions.id(), op.table.id(), op.out.id()];
        let elements = rows * columns;
        self.words(kernel, bindings, elements, elements.div_ceil(2))
    }

    pub(super) fn delta_gates(&mut self, op: &DeltaGates) -> Result<(), LowerError> {
        let [rows, heads] = self.dims(op.a)?;
        let kernel = Kernel::new("delta_gates").with("HEADS", heads);
        let inputs = [op.a.id(), op.b.id(), op.a_log.id(), op.dt_bias.id()];
        let [a, b, a_log, dt_bias] = inputs;
        let bindings = [a, b, a_log, dt_bias, op.decay.id(), op.beta.id()];
        self.words(kernel, bindings, rows * heads, rows * heads)
    }
}
