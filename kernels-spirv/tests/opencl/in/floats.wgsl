@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(64)
fn floats(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x;
    if i >= arrayLength(&a) {
        return;
    }
    let x = a[i];
    let z = b[i];
    let at = i * 16u;
    y[at] = x * z + x;
    y[at + 1u] = x / z;
    y[at + 2u] = sqrt(abs(z));
    y[at + 3u] = (x + z) - x;
    y[at + 4u] = floor(x);
    y[at + 5u] = ceil(x);
    y[at + 6u] = trunc(x);
    y[at + 7u] = round(x);
    y[at + 8u] = min(x, z);
    y[at + 9u] = max(x, z);
    y[at + 10u] = clamp(x, -1.0, 1.0);
    y[at + 11u] = select(-x, z, x < z);
    let v = vec3(x, z, 1.0) * vec3(z);
    y[at + 12u] = v.x - v.zyx.x;
    y[at + 13u] = f32(i32(x)) + f32(u32(z));
    y[at + 14u] = f32(bitcast<i32>(x)) + f32(bitcast<u32>(z));
    y[at + 15u] = bitcast<f32>((bitcast<u32>(x) + 0x7fffu + ((bitcast<u32>(x) >> 16u) & 1u)) & 0xffff0000u);
}
