//! Rotary position embedding on the leading dims of each head.
//!
//! ```text
//! a = x[j]   b = x[j + D/2]   (cos, sin) = table[position, .., j]        j = 0 .. D/2 - 1
//! out[j]       = bf16(a * cos - b * sin)
//! out[j + D/2] = bf16(b * cos + a * sin)
//! out[i]       = x[i]                                                    i >= D
//! ```
//!
//! bf16 inputs and bf16 cosines and sines widened to f32; both products rounded to f32 (exact, short of
//! under- and overflow), then their sum; one rounding to bf16. The halves are paired (NeoX), not neighbours.
//! Text positions only: with all three mRoPE components equal the interleaved sections are plain RoPE.
//! The table is made once on the host, so no angle loses precision in a kernel.
//!
//! Errors: a head narrower than `D`. At run time: a position past the table. An inert row needs a position
//! inside the table too; being zero, it stays zero.
//!
//! Source: transformers `apply_rotary_pos_emb`, which rounds each product to bf16, and vLLM's
//! fused_qk_norm_rope, which works in f32 as here. Fewer roundings, and one kernel can do norm and RoPE.

use crate::buffer::{BufferError, BufferTable};
use crate::launch::{LaunchError, Operand, Operation, Traffic, operation};
use crate::memory::Memory;
use crate::numerics::{bf16, round_bf16};
use alloc::{format, vec::Vec};

/// Rotates one head; `cos` and `sin` have half as many entries as dims are rotated.
pub fn rope_head(x: &[bf16], cos: &[bf16], sin: &[bf16], out: &mut [bf16]) {
    let half = cos.len();
    out.copy_from_slice(x);
    for (j, (cos, sin)) in cos.iter().zip(sin).enumerate() {
        let (cos, sin) = (cos.to_f32(), sin.to_f32());
        let (a, b) = (x[j].to_f32(), x[j + half].to_f32());
        out[j] = round_bf16(a * cos - b * sin);
        out[j + half] = round_bf16(b * cos + a * sin);
    }
}

operation! {
    /// Rotates dims `j` and `j + D/2` of the first `D` of each head; the rest pass unchanged.
    pub struct Rope {
        /// bf16 `[T, heads * head_dim]`
        read x: bf16,
        /// u32 `[T]`
        read positions: u32,
        /// bf16 `[positions, 2, D / 2]`: cosines, then sines
        read table: bf16,
        /// bf16 `[T, heads * head_dim]`
        write out: bf16,
        ;
        head_dim: usize,
    }
}

impl Operation for Rope {
    const NAME: &'static str = "rope";

    fn operands(&self) -> Vec<Operand> {
        self.declared_operands()
    }

    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
        check_rope(self, buffers).map_err(|e| LaunchError::buffer(Self::NAME, e))
    }

    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        let mut out = memory.take(self.out);
        let result = self.rotate(memory, &mut out);
        memory.put(self.out, out);
        result
    }

    /// One row of the table for each row.
    fn traffic(&self, buffers: &BufferTable) -> Traffic {
        let rows = buffers.bytes(self.positions) / 4;
        let table_row = match buffers.dims(self.table) {
            Ok([_, _, half]) => 2 * 2 * half as u64,
            Err(_) => 0,
        };
        let all = buffers.bytes(self.x)
            + buffers.bytes(self.positions)
            + rows * table_row
            + buffers.bytes(self.out);
        Traffic { min: all, max: all }
    }
}

impl Rope {
    fn rotate(&self, memory: &Memory<'_>, out: &mut [bf16]) -> Result<(), LaunchError> {
        let [_, columns] = memory.dims(self.x);
        let [positions, _, half] = memory.dims(self.table);
        let (x, table) = (memory.get(self.x), memory.get(self.table));
        let rows = x.chunks_exact(columns).zip(out.chunks_exact_mut(columns));
        for (t, (&position, (x, out))) in memory.get(self.positions).iter().zip(rows).enumerate() {
            if position as usize >= positions {
                let what = format!("position of row {t}");
                let expected = format!("below {positions}, the end of the RoPE table");
                return Err(LaunchError::step_data(Self::NAME, what, position, expected));
            }
            let (cos, sin) = table[position as usize * 2 * half..][..2 * half].split_at(half);
            for (x, out) in x
                .chunks_exact(self.head_dim)
                .zip(out.chunks_exact_mut(self.head_dim))
            {
                rope_head(x, cos, sin, out);
            }
        }
        Ok(())
    }
}

fn check_rope(op: &Rope, buffers: &BufferTable) -> Result<(), BufferError> {
    let [rows, columns] = buffers.dims(op.x)?;
    if columns == 0 || op.head_dim == 0 || !columns.is_multiple_of(op.head_dim) {
        return Err(buffers.shape_error(op.x, format!("[T, heads * {}], no 0", op.head_dim)));
    }
    let [positions, parts, half] = buffers.dims(op.table)?;
    if parts != 2 || positions == 0 || 2 * half > op.head_dim {
        let expected = format!(
            "[positions, 2, D / 2] with D at most {}, positions not 0",
            op.head_dim
        );
        return Err(buffers.shape_error(op.table, expected));
    }
    buffers.expect(op.positions, &[rows])?;
    buffers.expect(op.out, &[rows, columns])
}
