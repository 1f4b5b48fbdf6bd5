// The i32 sums of one rank of a K split: sixteen columns of one row a workgroup.
//! use grid columns_w8a8
//! read i8 codes weight
override N: u32;
override K: u32;

@group(0) @binding(0) var<storage, read> codes: array<u32>;
@group(0) @binding(1) var<storage, read> weight: array<u32>;
@group(0) @binding(2) var<storage, read_write> acc: array<i32>;
// x: rows, y: workgroups for the columns
@group(0) @binding(3) var<uniform> step: vec4<u32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let id = flat_group(group, groups);
    let row = id / step.y;
    if (row >= step.x) { return; }
    let first = 16u * (id % step.y);
    sum_columns(thread, row * K, 0u, first);
    if (thread < 16u && first + thread < N) { acc[row * N + first + thread] = column_sum(thread); }
}
