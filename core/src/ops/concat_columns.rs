//! Joins two matrices by columns.
//!
//! ```text
//! out[t] = a[t] followed by b[t]
//! ```
//!
//! bf16, copied bit for bit. The MTP head joins the normed embedding of the next token (`a`) and the normed hidden state
//! (`b`) in front of `mtp.fc`: in this order, which the shapes alone cannot tell.
//!
//! Source: vLLM's `qwen3_5_mtp.py`.

use crate::buffer::{BufferError, BufferTable};
use crate::launch::{LaunchError, Operand, Operation, operation};
use crate::memory::Memory;
use crate::numerics::bf16;
use alloc::vec::Vec;

operation! {
    /// `[a | b]`.
    pub struct ConcatColumns {
        /// bf16 `[T, A]`
        read a: bf16,
        /// bf16 `[T, B]`
        read b: bf16,
        /// bf16 `[T, A + B]`
        write out: bf16,
        ;
    }
}

impl Operation for ConcatColumns {
    const NAME: &'static str = "concat_columns";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        let check = || -> Result<(), BufferError> {
            let [rows, a] = buffers.dims(self.a)?;
            let [_, b] = buffers.dims(self.b)?;
            for (operand, width, rule) in [
                (self.a, a, "[T, A], A not 0"),
                (self.b, b, "[T, B], B not 0"),
            ] {
                if width == 0 {
                    return Err(buffers.shape_error(operand, rule));
                }
            }
            buffers.expect(self.b, &[rows, b])?;
            buffers.expect(self.out, &[rows, a + b])
        };
        check().map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let mut out = memory.take(self.out);
        let ([_, a_width], [_, b_width]) = (memory.dims(self.a), memory.dims(self.b));
        let a = memory.get(self.a).chunks_exact(a_width);
        let b = memory.get(self.b).chunks_exact(b_width);
        for ((a, b), out) in a.zip(b).zip(out.chunks_exact_mut(a_width + b_width)) {
            let (left, right) = out.split_at_mut(a_width);
            left.copy_from_slice(a);
            right.copy_from_slice(b);
        }
        memory.put(self.out, out);
        Ok(())
    }
}
