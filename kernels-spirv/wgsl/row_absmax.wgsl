// Largest magnitude of a row; one workgroup a row.
//! use grid bf16 absmax
//! read bf16 x
override K: u32;

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> absmax: array<f32>;
// x: rows
@group(0) @binding(2) var<uniform> step: vec4<u32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = flat_group(group, groups);
    if (row >= step.x) { return; }
    let most = row_absmax(thread, row * K);
    if (thread == 0u) { absmax[row] = most; }
}
