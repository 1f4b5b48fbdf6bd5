// 1/sqrt(x), correctly rounded: Newton, then one step of third order with the residual in two
// words; see core/src/numerics/rsqrt.rs for the derivation.
fn contract_rsqrt(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let tiny = (bits & 0x7fffffffu) < 0x00800000u;
    let z_bits = bitcast<u32>(select(x, x * 16777216.0f, tiny));

    let biased = i32(z_bits >> 23u) - 127;
    let e = biased >> 1u;
    let m = bitcast<f32>((z_bits & 0x007fffffu) | (u32((biased & 1) + 127) << 23u));

    let half_m = 0.5f * m;
    var y = bitcast<f32>(0x5f3759dfu - (bitcast<u32>(m) >> 1u));
    y = y * (1.5f - (half_m * y) * y);
    y = y * (1.5f - (half_m * y) * y);
    y = y * (1.5f - (half_m * y) * y);

    let y_hi = bitcast<f32>(bitcast<u32>(y) & 0xfffff000u);
    let y_lo = y - y_hi;
    let p_hi = y_hi * y_hi;
    let p_mid = 2.0f * (y_hi * y_lo);
    let p = p_hi + p_mid;
    let p_lo = (p_mid - (p - p_hi)) + y_lo * y_lo;
    let m_hi = bitcast<f32>(bitcast<u32>(m) & 0xfffff000u);
    let m_lo = m - m_hi;
    let p_up = bitcast<f32>(bitcast<u32>(p) & 0xfffff000u);
    let p_down = p - p_up;
    let w = m * p;
    let w_lo = (((m_hi * p_up - w) + m_hi * p_down) + m_lo * p_up) + m_lo * p_down;
    let residual = ((1.0f - w) - w_lo) - m * p_lo;
    y = y + y * (residual * (0.5f + 0.375f * residual));

    let scale = 127 - select(e, e - 12, tiny);
    y = y * bitcast<f32>(u32(scale) << 23u);
    if ((bits & 0x7fffffffu) == 0u) { y = bitcast<f32>(bits | 0x7f800000u); }
    y = select(y, 0.0f, bits == 0x7f800000u);
    return select(y, bitcast<f32>(0x7fc00000u), is_nan(x) || x < 0.0f);
}
