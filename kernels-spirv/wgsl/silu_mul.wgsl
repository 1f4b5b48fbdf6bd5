// bf16(bf16(silu(gate)) * up), gate and up side by side in a row.
//! use grid bf16 div exp gates
//! read bf16 gate_up
//! write bf16 out
override WIDTH: u32;

@group(0) @binding(0) var<storage, read> gate_up: array<u32>;
@group(0) @binding(1) var<storage, read_write> out: array<atomic<u32>>;
// x: elements of `out`
@group(0) @binding(2) var<uniform> step: vec4<u32>;

fn value(e: u32) -> u32 {
    if (e >= step.x) { return 0u; }
    let at = (e / WIDTH) * 2u * WIDTH + e % WIDTH;
    return round_bf16(rounded(silu(gate_up_at(at))) * gate_up_at(at + WIDTH));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let w = flat_group(group, groups) * 64u + thread;
    out_put(w, 0u, step.x, value(2u * w), value(2u * w + 1u));
}
