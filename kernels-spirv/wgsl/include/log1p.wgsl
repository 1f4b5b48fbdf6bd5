// ln(1 + x) of the contract: k ln 2 + ln(1 + f); see core/src/numerics/log1p.rs for the derivation.
fn contract_log1p(x: f32) -> f32 {
    let u = 1.0f + x;
    let v = u - x;
    let u_lo = (x - (u - v)) + (1.0f - v);

    let shifted = bitcast<u32>(u) + (0x3f800000u - 0x3f300000u);
    let k = i32(shifted >> 23u) - 127;
    let m = bitcast<f32>((shifted & 0x007fffffu) + 0x3f300000u);
    let k_scale = select(k, 100, k > 100);
    let scale = bitcast<f32>(u32(127 - k_scale) << 23u);

    let m1 = m - 1.0f;
    let d = u_lo * scale;
    let f = m1 + d;
    let g = d - (f - m1);

    var q = -0.12504454f + f * 0.0883812755f;
    q = 0.11498867f + f * q;
    q = -0.122569717f + f * q;
    q = 0.142450958f + f * q;
    q = -0.166762888f + f * q;
    q = 0.200014114f + f * q;
    q = -0.249998704f + f * q;
    q = 0.333333194f + f * q;

    let f_hi = bitcast<f32>(bitcast<u32>(f) & 0xfffff000u);
    let f_lo = f - f_hi;
    let half_sq = 0.5f * (f_hi * f_hi);
    let half_sq_lo = 0.5f * (f_lo * (f + f_hi));
    let t = f - half_sq;
    let t_lo = (f - t) - half_sq;

    let kf = f32(k);
    let base = kf * 0.693145752f;
    let top = base + t;
    let top_lo = t - (top - base);

    let from_g = g * (1.0f - f * (1.0f - f));
    let small = (from_g + kf * 1.42860677e-06f) + ((t_lo - half_sq_lo) + top_lo);
    let sum = top + ((f * f) * (f * q) + small);

    let x_bits = bitcast<u32>(x);
    var y = bitcast<f32>(bitcast<u32>(sum) | (x_bits & 0x80000000u));
    y = select(y, x, x_bits == 0x7f800000u);
    y = select(y, bitcast<f32>(0xff800000u), x == -1.0f);
    return select(y, bitcast<f32>(0x7fc00000u), is_nan(x) || x < -1.0f);
}
