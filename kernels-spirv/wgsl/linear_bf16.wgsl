// x W^T over bf16 weights: sixteen columns of one row a workgroup.
//! use grid bf16 fold columns_bf16
//! read bf16 x weight
//! write bf16 out
override N: u32;
override K: u32;

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> weight: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<atomic<u32>>;
// x: rows, y: workgroups for the columns, z: first column
@group(0) @binding(3) var<uniform> step: vec4<u32>;

fn value(row: u32, n: u32, first: u32) -> u32 { return column(n - first); }

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
