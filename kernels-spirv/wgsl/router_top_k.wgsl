// Softmax over all experts, the best K, renormalised; one workgroup a row, one invocation a lane.
//! use grid bf16 div exp fold rank
//! read bf16 logits
override EXPERTS: u32;
override K: u32;

@group(0) @binding(0) var<storage, read> logits: array<u32>;
@group(0) @binding(1) var<storage, read> row_seq: array<u32>;
@group(0) @binding(2) var<storage, read_write> ids: array<u32>;
@group(0) @binding(3) var<storage, read_write> weights: array<f32>;
// x: rows
@group(0) @binding(4) var<uniform> step: vec4<u32>;

var<workgroup> lanes: array<f32, 32>;
var<workgroup> best_value: array<f32, 32>;
var<workgroup> best_id: array<u32, 32>;
var<workgroup> chosen: array<f32, K>;
// an invocation alone looks at the entries of its experts
var<workgroup> taken: array<u32, EXPERTS>;

fn weight(l: f32, most: f32) -> f32 { return select(contract_exp(l - most), 0.0f, is_nan(l)); }

@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = flat_group(group, groups);
    if (row >= step.x) { return; }
    if (row_seq[row] == NONE) {
        for (var r = thread; r < K; r += 32u) {
            ids[row * K + r] = NONE;
            weights[row * K + r] = 0.0f;
        }
        return;
    }
    let base = row * EXPERTS;
    var most = bitcast<f32>(0xff800000u);
    for (var e = thread; e < EXPERTS; e += 32u) {
        let l = logits_at(base + e);
        if (l > most) { most = l; }
        taken[e] = 0u;
    }
    lanes[thread] = most;
    workgroupBarrier();
    for (var i = 0u; i < 32u; i++) {
        if (lanes[i] > most) { most = lanes[i]; }
    }
    workgroupBarrier();
    var sum = 0.0f;
    for (var e = thread; e < EXPERTS; e += 32u) { sum = sum + weight(logits_at(base + e), most); }
    lanes[thread] = sum;
    workgroupBarrier();
    let total = fold_lanes(0u);
    for (var r = 0u; r < K; r++) {
        var value = nan();
        var id = NONE;
        for (var e = thread; e < EXPERTS; e += 32u) {
            let l = logits_at(base + e);
            if (taken[e] == 0u && better(l, e, value, id)) {
                value = l;
                id = e;
            }
        }
        best_value[thread] = value;
        best_id[thread] = id;
        workgroupBarrier();
        for (var i = 0u; i < 32u; i++) {
            if (better(best_value[i], best_id[i], value, id)) {
                value = best_value[i];
                id = best_id[i];
            }
        }
        if (id % 32u == thread) { taken[id] = 1u; }
        if (thread == 0u) {
            chosen[r] = div(weight(value, most), total);
            ids[row * K + r] = id;
        }
        workgroupBarrier();
    }
    var all = 0.0f;
    for (var r = 0u; r < K; r++) { all = all + chosen[r]; }
    for (var r = thread; r < K; r += 32u) { weights[row * K + r] = div(chosen[r], plus_zero(all)); }
}
