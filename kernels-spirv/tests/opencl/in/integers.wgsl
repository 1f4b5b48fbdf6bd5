@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read> b: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(64)
fn integers(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x;
    if i >= arrayLength(&a) {
        return;
    }
    let x = a[i];
    let z = b[i];
    let sx = bitcast<i32>(x);
    let sz = bitcast<i32>(z);
    let at = i * 20u;
    y[at] = bitcast<u32>(dot4I8Packed(x, z));
    y[at + 1u] = dot4U8Packed(x, z);
    y[at + 2u] = x / z;
    y[at + 3u] = x % z;
    y[at + 4u] = bitcast<u32>(sx / sz);
    y[at + 5u] = bitcast<u32>(sx % sz);
    y[at + 6u] = (x << (z & 31u)) ^ (x >> (z & 31u));
    y[at + 7u] = bitcast<u32>(sx >> (z & 31u));
    y[at + 8u] = bitcast<u32>(min(sx, sz)) ^ bitcast<u32>(clamp(sx, -5, 7));
    y[at + 9u] = max(x, z) - min(x, z);
    y[at + 10u] = countLeadingZeros(x) + 64u * countTrailingZeros(z) + 4096u * countOneBits(x);
    y[at + 11u] = firstLeadingBit(x >> (z & 31u));
    y[at + 12u] = extractBits(x, z & 63u, (z >> 8u) & 63u);
    y[at + 13u] = bitcast<u32>(extractBits(sx, z & 63u, (z >> 8u) & 63u));
    let bytes = unpack4xI8(x);
    y[at + 14u] = pack4xI8(bytes.wzyx + vec4(1));
    y[at + 15u] = pack4xU8(unpack4xU8(z) * 3u);
    y[at + 16u] = bitcast<u32>(dot(bytes.xyz, unpack4xI8(z).xyz));
    y[at + 17u] = bitcast<u32>(-sx) + bitcast<u32>(abs(sz)) + ~x;
    y[at + 18u] = u32(sx < sz) + 2u * u32(x < z) + 4u * u32(!(x == z)) + 8u * u32(bool(x & 1u));
    y[at + 19u] = bitcast<u32>((vec2(sx, sz) / 7).x) + (vec2(x, z) % vec2(z, 9u)).y;
}
