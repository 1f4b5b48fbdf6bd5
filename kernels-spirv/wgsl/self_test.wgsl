// What a device must get right before it may compute anything: one case an invocation, eight results each.
//! use grid bf16 div exp rsqrt fold

@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read> c: array<f32>;
@group(0) @binding(3) var<storage, read_write> results: array<u32>;
// x: cases
@group(0) @binding(4) var<uniform> step: vec4<u32>;

var<workgroup> lanes: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first = flat_group(group, groups) * 64u;
    let i = min(first + thread, step.x - 1u);
    let x = a[i];
    let y = b[i];
    let z = c[i];
    // Two products and a sum, each rounded: contraction shows, and a sum that was regrouped.
    let product = x * y;
    let sum = x + z;
    let back = sum - x;
    let error = (x - (sum - back)) + (z - back);
    lanes[thread] = z;
    workgroupBarrier();
    // Another invocation's value, and the tree over one half of the workgroup.
    let tree = fold_lanes(thread & 32u);
    if (first + thread < step.x) {
        results[8u * i] = bitcast<u32>(product + z);
        results[8u * i + 1u] = bitcast<u32>(error);
        results[8u * i + 2u] = bitcast<u32>(product);
        results[8u * i + 3u] = bitcast<u32>(div(x, y));
        results[8u * i + 4u] = bitcast<u32>(contract_exp(x));
        results[8u * i + 5u] = bitcast<u32>(contract_rsqrt(y));
        results[8u * i + 6u] = u32(dot4I8Packed(bitcast<u32>(x), bitcast<u32>(y)));
        results[8u * i + 7u] = bitcast<u32>(tree);
    }
}
