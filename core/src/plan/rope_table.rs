//! The rotary table, made once on the host: devices only multiply and add.

use crate::config::AttentionConfig;
use crate::numerics::{bf16, rope_angle, rope_cos_sin, rope_inv_freq, round_bf16};
use alloc::{vec, vec::Vec};

/// bf16 `[positions, 2, D / 2]`: cosines, then sines of the angles of each position.
pub fn rope_table(attention: &AttentionConfig, positions: usize) -> Vec<bf16> {
    let inv_freq = rope_inv_freq(attention.rope_theta as f32, attention.rotary_dim);
    let half = inv_freq.len();
    let mut table = vec![bf16::ZERO; positions * 2 * half];
    for (position, row) in table.chunks_exact_mut(2 * half).enumerate() {
        for (j, &inv_freq) in inv_freq.iter().enumerate() {
            let (cos, sin) = rope_cos_sin(rope_angle(position as u32, inv_freq));
            row[j] = round_bf16(cos);
            row[half + j] = round_bf16(sin);
        }
    }
    table
}
