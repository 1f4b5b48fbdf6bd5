// Residual addition, then the norm of the stored sum; one workgroup a row, one invocation a lane.
//! use grid bf16 div rsqrt fold
//! read bf16 x delta
//! write bf16 sum out
override WIDTH: u32;
override EPS: f32;
// what is added to the stored weight
override OFFSET: f32;

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> delta: array<u32>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read_write> sum: array<atomic<u32>>;
@group(0) @binding(4) var<storage, read_write> out: array<atomic<u32>>;
// x: rows
@group(0) @binding(5) var<uniform> step: vec4<u32>;

var<workgroup> lanes: array<f32, 32>;

fn added(e: u32) -> u32 { return round_bf16(x_at(e) + delta_at(e)); }

fn value(bits: u32, i: u32, scale: f32) -> u32 {
    let factor = select(weight[i], OFFSET + weight[i], OFFSET == 1.0f);
    return round_bf16((widen(bits) * scale) * factor);
}

@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = flat_group(group, groups);
    if (row >= step.x) { return; }
    let begin = row * WIDTH;
    let end = begin + WIDTH;
    var squares = 0.0f;
    for (var i = thread; i < WIDTH; i += 32u) {
        let v = widen(added(begin + i));
        squares = squares + v * v;
    }
    lanes[thread] = squares;
    workgroupBarrier();
    let scale = contract_rsqrt(div(fold_lanes(0u), f32(WIDTH)) + EPS);
    for (var w = (begin >> 1u) + thread; w <= ((end - 1u) >> 1u); w += 32u) {
        let low = max(2u * w, begin);
        let high = min(2u * w + 1u, end - 1u);
        let low_sum = added(low);
        let high_sum = added(high);
        sum_put(w, begin, end, low_sum, high_sum);
        out_put(w, begin, end, value(low_sum, low - begin, scale), value(high_sum, high - begin, scale));
    }
}
