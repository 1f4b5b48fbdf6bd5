// Words under a mask: the reductions over one rank, and its columns.
//! use grid
override MASK: u32;

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
// x: words
@group(0) @binding(2) var<uniform> step: vec4<u32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let w = flat_group(group, groups) * 64u + thread;
    if (w < step.x) { out[w] = x[w] & MASK; }
}
