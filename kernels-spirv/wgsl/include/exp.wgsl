// e^x of the contract: 2^n e^r, r in two words; see core/src/numerics/exp.rs for the derivation.
fn contract_exp(x: f32) -> f32 {
    var x1 = select(x, 89.0f, x > 89.0f);
    x1 = select(x1, -104.0f, x1 < -104.0f);

    let shifted = x1 * 1.44269502f + 12582912.0f;
    let n = shifted - 12582912.0f;
    let ni = bitcast<i32>(shifted) - 0x4b400000;

    let a = x1 - n * 0.693145752f;
    let b = n * 1.42860677e-06f;
    let r = a - b;
    let r_lo = (a - r) - b;

    var p = 0.00139355822f + r * 0.000181563766f;
    p = 0.00833641086f + r * p;
    p = 0.0416664556f + r * p;
    p = 0.166666538f + r * p;

    let hi = 1.0f + r;
    let lo = r - (hi - 1.0f);
    let sq = r * r;
    let rest = 0.5f * sq + (lo + (r_lo * hi + (r * sq) * p));

    // Subnormal results are rounded once, by a summand whose last place is theirs.
    let subnormal = x1 < -87.3365402f;
    let base = select(0.0f, bitcast<f32>(u32(1 - ni) << 23u), subnormal);
    let top = base + hi;
    let y = (top + ((hi - (top - base)) + rest)) - base;

    let n1 = ni >> 1u;
    let n2 = ni - n1;
    let s1 = bitcast<f32>(u32(n1 + 127) << 23u);
    let s2 = bitcast<f32>(u32(n2 + 127) << 23u);
    return select(y * s1 * s2, bitcast<f32>(0x7fc00000u), is_nan(x));
}
