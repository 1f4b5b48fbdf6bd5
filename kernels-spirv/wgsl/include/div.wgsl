// Correctly rounded division. Vulkan allows 2.5 ulp: the device's quotient of the mantissas is an
// estimate, the integer residual says by how many units of 2^-24 it is off.

struct Scaled { mantissa: u32, exponent: i32 }

fn scaled(bits: u32) -> Scaled {
    let exponent = i32((bits >> 23u) & 0xffu);
    let mantissa = bits & 0x7fffffu;
    if (exponent != 0) { return Scaled(mantissa | 0x800000u, exponent); }
    let shift = countLeadingZeros(mantissa) - 8u;
    return Scaled(mantissa << shift, 1 - i32(shift));
}

fn div(a: f32, b: f32) -> f32 {
    let a_bits = bitcast<u32>(a);
    let b_bits = bitcast<u32>(b);
    let sign = (a_bits ^ b_bits) & 0x80000000u;
    let a_size = a_bits & 0x7fffffffu;
    let b_size = b_bits & 0x7fffffffu;
    let infinity = 0x7f800000u;
    if (a_size > infinity || b_size > infinity) { return bitcast<f32>(0x7fc00000u); }
    if ((a_size == infinity && b_size == infinity) || (a_size == 0u && b_size == 0u)) { return bitcast<f32>(0x7fc00000u); }
    if (a_size == infinity || b_size == 0u) { return bitcast<f32>(sign | infinity); }
    if (a_size == 0u || b_size == infinity) { return bitcast<f32>(sign); }

    let x = scaled(a_size);
    let y = scaled(b_size);
    var m = x.mantissa;
    var exponent = x.exponent - y.exponent + 127;
    if (m < y.mantissa) {
        m = m << 1u;
        exponent = exponent - 1;
    }
    // quotient in [2^24, 2^25): 24 bits and the one that rounds.
    var quotient = u32((f32(m) / f32(y.mantissa)) * 16777216.0);
    var residual = i32((m << 24u) - quotient * y.mantissa);
    let divisor = i32(y.mantissa);
    for (var i = 0u; i < 10u && residual < 0; i++) {
        quotient = quotient - 1u;
        residual = residual + divisor;
    }
    for (var i = 0u; i < 10u && residual >= divisor; i++) {
        quotient = quotient + 1u;
        residual = residual - divisor;
    }
    if (exponent >= 255) { return bitcast<f32>(sign | infinity); }
    // Subnormal results lose more bits, in one rounding.
    let drop = 1u + u32(clamp(1 - exponent, 0, 25));
    let kept = quotient >> drop;
    let rest = quotient & ((1u << drop) - 1u);
    let half = 1u << (drop - 1u);
    let up = rest > half || (rest == half && (residual != 0 || (kept & 1u) == 1u));
    let head = select(u32(max(exponent, 1) - 1) << 23u, 0u, exponent < 1);
    return bitcast<f32>(sign | (head + kept + select(0u, 1u, up)));
}
