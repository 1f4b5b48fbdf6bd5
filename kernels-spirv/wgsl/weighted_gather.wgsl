// Weighted sum of the expert rows of each token, in top-k order.
//! use grid bf16
//! read bf16 y
//! write bf16 out
override WIDTH: u32;
// experts per token
override K: u32;

@group(0) @binding(0) var<storage, read> y: array<u32>;
@group(0) @binding(1) var<storage, read> row_of_slot: array<u32>;
@group(0) @binding(2) var<storage, read> weights: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<atomic<u32>>;
// x: elements of `out`
@group(0) @binding(4) var<uniform> step: vec4<u32>;

fn value(e: u32) -> u32 {
    if (e >= step.x) { return 0u; }
    let t = e / WIDTH;
    var sum = 0.0f;
    for (var slot = t * K; slot < t * K + K; slot++) {
        let row = row_of_slot[slot];
        if (row != NONE) { sum = sum + weights[slot] * y_at(row * WIDTH + e % WIDTH); }
    }
    return round_bf16(plus_zero(sum));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let w = flat_group(group, groups) * 64u + thread;
    out_put(w, 0u, step.x, value(2u * w), value(2u * w + 1u));
}
