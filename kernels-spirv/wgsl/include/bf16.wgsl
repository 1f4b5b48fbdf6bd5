// bf16 by bits: the upper half of an f32, two to a word, the even element below.

fn widen(bits: u32) -> f32 { return bitcast<f32>(bits << 16u); }

fn half_of(word: u32, element: u32) -> u32 { return (word >> ((element & 1u) << 4u)) & 0xffffu; }

// Drivers compile `x != x` to false, so a NaN is told from its bits.
fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }

fn is_finite(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) < 0x7f800000u; }

fn round_bf16(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let rounded = (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
    return select(rounded, 0x7fc0u, is_nan(x));
}

fn rounded(x: f32) -> f32 { return widen(round_bf16(x)); }

// Sums start at +0.0 and so never are -0.0; a compiler that folds `0.0 + x` would leave one.
fn plus_zero(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    return bitcast<f32>(select(bits, 0u, bits == 0x80000000u));
}

fn nan() -> f32 { return bitcast<f32>(0x7fc00000u); }
