// RMS norm with a SiLU gate over each head; one workgroup a head, one invocation a lane.
//! use grid bf16 div exp gates rsqrt fold
//! read bf16 x gate
//! write bf16 out
override WIDTH: u32;
override EPS: f32;

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> gate: array<u32>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<atomic<u32>>;
// x: heads of all rows
@group(0) @binding(4) var<uniform> step: vec4<u32>;

var<workgroup> lanes: array<f32, 32>;

fn value(e: u32, i: u32, scale: f32) -> u32 {
    return round_bf16(((x_at(e) * scale) * weight[i]) * silu(gate_at(e)));
}

@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let head = flat_group(group, groups);
    if (head >= step.x) { return; }
    let begin = head * WIDTH;
    let end = begin + WIDTH;
    var sum = 0.0f;
    for (var i = thread; i < WIDTH; i += 32u) {
        let v = x_at(begin + i);
        sum = sum + v * v;
    }
    lanes[thread] = sum;
    workgroupBarrier();
    let scale = contract_rsqrt(div(fold_lanes(0u), f32(WIDTH)) + EPS);
    for (var w = (begin >> 1u) + thread; w <= ((end - 1u) >> 1u); w += 32u) {
        let low = max(2u * w, begin);
        let high = min(2u * w + 1u, end - 1u);
        out_put(w, begin, end, value(low, low - begin, scale), value(high, high - begin, scale));
    }
}
