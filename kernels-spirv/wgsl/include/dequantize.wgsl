// The W8A8 epilogue: the row's scale first, one rounding to bf16. Some devices convert integers above
// 2^24 otherwise than to nearest even; both halves convert exactly, their sum is the one rounding.
fn i32_to_f32(v: i32) -> f32 { return f32(v >> 16u) * 65536.0f + f32(v & 0xffff); }

fn dequantized(acc: i32, scale: f32, weight_scale: f32) -> u32 {
    return round_bf16((i32_to_f32(acc) * scale) * weight_scale);
}
