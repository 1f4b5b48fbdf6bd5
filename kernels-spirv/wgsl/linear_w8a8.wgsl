// s8 codes and weights, exact i32 sum, one epilogue: sixteen columns of one row a workgroup.
//! use grid bf16 dequantize columns_w8a8
//! read i8 codes weight
//! write bf16 out
override N: u32;
override K: u32;

@group(0) @binding(0) var<storage, read> codes: array<u32>;
@group(0) @binding(1) var<storage, read> scale: array<f32>;
@group(0) @binding(2) var<storage, read> weight: array<u32>;
@group(0) @binding(3) var<storage, read> weight_scale: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<atomic<u32>>;
// x: rows, y: workgroups for the columns
@group(0) @binding(5) var<uniform> step: vec4<u32>;

fn value(row: u32, n: u32, first: u32) -> u32 {
    return dequantized(column_sum(n - first), scale[row], weight_scale[n]);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let id = flat_group(group, groups);
    let row = id / step.y;
    if (row >= step.x) { return; }
    let first = 16u * (id % step.y);
    sum_columns(thread, row * K, 0u, first);
    let begin = row * N;
    for (var w = ((begin + first) >> 1u) + thread; w <= ((begin + min(first + 15u, N - 1u)) >> 1u); w += 64u) {
        let low = max(2u * w, begin + first) - begin;
        let high = min(2u * w + 1u, begin + min(first + 15u, N - 1u)) - begin;
        out_put(w, begin + first, begin + min(first + 16u, N), value(row, low, first), value(row, high, first));
    }
}
