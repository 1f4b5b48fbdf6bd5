// The W8A8 epilogue apart from its sum.
//! use grid bf16 dequantize
//! write bf16 out
override N: u32;

@group(0) @binding(0) var<storage, read> acc: array<i32>;
@group(0) @binding(1) var<storage, read> scale: array<f32>;
@group(0) @binding(2) var<storage, read> weight_scale: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<atomic<u32>>;
// x: elements of `out`
@group(0) @binding(4) var<uniform> step: vec4<u32>;

fn value(e: u32) -> u32 {
    if (e >= step.x) { return 0u; }
    return dequantized(acc[e], scale[e / N], weight_scale[e % N]);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let w = flat_group(group, groups) * 64u + thread;
    out_put(w, 0u, step.x, value(2u * w), value(2u * w + 1u));
}
