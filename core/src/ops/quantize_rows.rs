//! Activation codes per row.

use crate::buffer::BufferTable;
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::bf16;
use alloc::vec::Vec;

operation! {
    /// Dynamic s8 codes with one scale a row.
    pub struct QuantizeRows {
        /// bf16 `[M, K]`
        read x: bf16,
        /// i8 `[M, K]`
        write codes: i8,
        /// f32 `[M]`
        write scale: f32,
        ;
    }
}

impl Operation for QuantizeRows {
    const NAME: &'static str = "quantize_rows";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, _buffers: &BufferTable) -> Result<(), LaunchError> {
        unimplemented!()
    }

    fn run(&self, _memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        unimplemented!()
    }
}

operation! {
    /// Largest magnitude of a row: the part of [`QuantizeRows`] that K-split ranks reduce as a maximum.
    pub struct RowAbsmax {
        /// bf16 `[M, K]`
        read x: bf16,
        /// f32 `[M]`
        write absmax: f32,
        ;
    }
}

impl Operation for RowAbsmax {
    const NAME: &'static str = "row_absmax";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, _buffers: &BufferTable) -> Result<(), LaunchError> {
        unimplemented!()
    }

    fn run(&self, _memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        unimplemented!()
    }
}

operation! {
    /// Codes by a given row maximum: the rest of [`QuantizeRows`].
    pub struct QuantizeRowsBy {
        /// bf16 `[M, K]`
        read x: bf16,
        /// f32 `[M]`
        read absmax: f32,
        /// i8 `[M, K]`
        write codes: i8,
        /// f32 `[M]`
        write scale: f32,
        ;
    }
}

impl Operation for QuantizeRowsBy {
    const NAME: &'static str = "quantize_rows_by";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, _buffers: &BufferTable) -> Result<(), LaunchError> {
        unimplemented!()
    }

    fn run(&self, _memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        unimplemented!()
    }
}
