//! Linear layers: `y = x W^T`.

use crate::buffer::BufferTable;
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::bf16;
use alloc::vec::Vec;

operation! {
    /// bf16 weights, lane-order f32 sum, one rounding.
    pub struct LinearBf16 {
        /// bf16 `[M, K]`
        read x: bf16,
        /// bf16 `[N, K]`
        read weight: bf16,
        /// bf16 `[M, N]`
        write out: bf16,
        ;
    }
}

impl Operation for LinearBf16 {
    const NAME: &'static str = "linear_bf16";

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
    /// s8 weights and codes, exact i32 sum, `(acc * scale) * weight_scale`, one rounding.
    pub struct LinearW8A8 {
        /// i8 `[M, K]`
        read codes: i8,
        /// f32 `[M]`
        read scale: f32,
        /// i8 `[N, K]`
        read weight: i8,
        /// f32 `[N]`
        read weight_scale: f32,
        /// bf16 `[M, N]`
        write out: bf16,
        ;
    }
}

impl Operation for LinearW8A8 {
    const NAME: &'static str = "linear_w8a8";

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
    /// The i32 sums of one rank of a K split.
    pub struct LinearW8A8Partial {
        /// i8 `[M, K]`
        read codes: i8,
        /// i8 `[N, K]`
        read weight: i8,
        /// i32 `[M, N]`
        write acc: i32,
        ;
    }
}

impl Operation for LinearW8A8Partial {
    const NAME: &'static str = "linear_w8a8_partial";

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
