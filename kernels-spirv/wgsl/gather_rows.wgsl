// Row `rows[r]` of x, zeros for NONE.
//! use grid bf16
//! read bf16 x
//! write bf16 out
override WIDTH: u32;

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> rows: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<atomic<u32>>;
// x: elements of `out`
@group(0) @binding(3) var<uniform> step: vec4<u32>;

fn value(e: u32) -> u32 {
    if (e >= step.x) { return 0u; }
    let row = rows[e / WIDTH];
    if (row == NONE) { return 0u; }
    return x_bits(row * WIDTH + e % WIDTH);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let w = flat_group(group, groups) * 64u + thread;
    out_put(w, 0u, step.x, value(2u * w), value(2u * w + 1u));
}
