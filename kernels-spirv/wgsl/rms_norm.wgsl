// RMS norm of groups of columns; one workgroup a group, one invocation a lane.
//! use grid bf16 div rsqrt fold
//! read bf16 x
//! write bf16 out
override WIDTH: u32;
override STRIDE: u32;
override EPS: f32;
// what is added to the stored weight
override OFFSET: f32;

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<atomic<u32>>;
// x: groups
@group(0) @binding(3) var<uniform> step: vec4<u32>;

var<workgroup> lanes: array<f32, 32>;

fn value(row: u32, i: u32, scale: f32) -> u32 {
    let factor = select(weight[i], OFFSET + weight[i], OFFSET == 1.0f);
    return round_bf16((x_at(row * STRIDE + i) * scale) * factor);
}

@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = flat_group(group, groups);
    if (row >= step.x) { return; }
    var sum = 0.0f;
    for (var i = thread; i < WIDTH; i += 32u) {
        let v = x_at(row * STRIDE + i);
        sum = sum + v * v;
    }
    lanes[thread] = sum;
    workgroupBarrier();
    let scale = contract_rsqrt(div(fold_lanes(0u), f32(WIDTH)) + EPS);
    let begin = row * WIDTH;
    let end = begin + WIDTH;
    for (var w = (begin >> 1u) + thread; w <= ((end - 1u) >> 1u); w += 32u) {
        let low = value(row, max(2u * w, begin) - begin, scale);
        let high = value(row, min(2u * w + 1u, end - 1u) - begin, scale);
        out_put(w, begin, end, low, high);
    }
}
