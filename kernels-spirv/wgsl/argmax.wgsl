// Index of the largest logit; one workgroup a row.
//! use grid bf16 rank
//! read bf16 logits
override N: u32;

@group(0) @binding(0) var<storage, read> logits: array<u32>;
@group(0) @binding(1) var<storage, read> out_rows: array<u32>;
@group(0) @binding(2) var<storage, read_write> tokens: array<u32>;
// x: rows
@group(0) @binding(3) var<uniform> step: vec4<u32>;

var<workgroup> values: array<f32, 64>;
var<workgroup> ids: array<u32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = flat_group(group, groups);
    if (row >= step.x) { return; }
    // An invocation without an id stands behind every one that has one.
    var best = nan();
    var id = NONE;
    for (var i = thread; i < N; i += 64u) {
        let l = logits_at(row * N + i);
        if (better(l, i, best, id)) {
            best = l;
            id = i;
        }
    }
    values[thread] = best;
    ids[thread] = id;
    workgroupBarrier();
    if (thread == 0u) {
        for (var i = 1u; i < 64u; i++) {
            if (better(values[i], ids[i], best, id)) {
                best = values[i];
                id = ids[i];
            }
        }
        tokens[row] = select(id, NONE, out_rows[row] == NONE);
    }
}
