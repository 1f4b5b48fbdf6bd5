// Dynamic s8 codes of a row by its largest magnitude.
struct RowScale { scale: f32, reciprocal: f32, coded: bool }

fn row_scale(absmax: f32) -> RowScale {
    if (!is_finite(absmax)) { return RowScale(bitcast<f32>(0x7fc00000u), 0.0f, false); }
    if (absmax < 1e-10f) { return RowScale(div(1e-10f, 127.0f), 0.0f, false); }
    let scale = div(absmax, 127.0f);
    return RowScale(scale, div(1.0f, scale), true);
}

fn code(x: f32, row: RowScale) -> u32 {
    if (!row.coded) { return 0u; }
    let y = x * row.reciprocal;
    if (is_nan(y)) { return 0u; }
    var c = select(y, 127.0f, y > 127.0f);
    c = select(c, -127.0f, c < -127.0f);
    // 1.5 * 2^23 leaves the nearest integer, ties to even, in the low bits.
    return u32(bitcast<i32>(c + 12582912.0f) - 0x4b400000) & 0xffu;
}
