// Rotates dims j and j + HALF of the first 2 * HALF of each head.
//! use grid bf16
//! read bf16 x table
//! write bf16 out
override COLUMNS: u32;
override HEAD_DIM: u32;
override HALF: u32;

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> positions: array<u32>;
@group(0) @binding(2) var<storage, read> table: array<u32>;
@group(0) @binding(3) var<storage, read_write> out: array<atomic<u32>>;
// x: elements of `out`
@group(0) @binding(4) var<uniform> step: vec4<u32>;

fn value(e: u32) -> u32 {
    if (e >= step.x) { return 0u; }
    let j = e % HEAD_DIM;
    if (j >= 2u * HALF) { return x_bits(e); }
    let low = j < HALF;
    let pair = select(j - HALF, j, low);
    let angle = positions[e / COLUMNS] * 2u * HALF + pair;
    let cosine = table_at(angle);
    let sine = table_at(angle + HALF);
    let head = e - j;
    let a = x_at(head + pair);
    let b = x_at(head + pair + HALF);
    if (low) { return round_bf16(a * cosine - b * sine); }
    return round_bf16(b * cosine + a * sine);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let w = flat_group(group, groups) * 64u + thread;
    out_put(w, 0u, step.x, value(2u * w), value(2u * w + 1u));
}
