// The gated delta rule, token by token: one workgroup takes COLUMNS columns of one head's state through
// all rows of a sequence, an invocation a column, the state on chip from the first row to the last.
//! use grid bf16 rsqrt fold walk
//! read bf16 qkv
//! write bf16 out
override KEY_HEADS: u32;
override VALUE_HEADS: u32;
override KEY_DIM: u32;
override VALUE_DIM: u32;
// columns of the state a workgroup takes: at most 32, as many as fit
override COLUMNS: u32;
override STATE: u32 = KEY_DIM * COLUMNS;
override L2_EPS: f32;
override SCALE: f32;

@group(0) @binding(0) var<storage, read> qkv: array<u32>;
@group(0) @binding(1) var<storage, read> decay: array<f32>;
@group(0) @binding(2) var<storage, read> beta: array<f32>;
@group(0) @binding(3) var<storage, read> seq_rows: array<u32>;
@group(0) @binding(4) var<storage, read> state_read: array<u32>;
@group(0) @binding(5) var<storage, read> state_write: array<u32>;
@group(0) @binding(6) var<storage, read_write> state: array<f32>;
@group(0) @binding(7) var<storage, read_write> out: array<atomic<u32>>;
// x: rows, y: sequences, z: workgroups for the columns of a head
@group(0) @binding(8) var<uniform> step: vec4<u32>;

var<workgroup> current: array<f32, STATE>;
var<workgroup> query: array<f32, KEY_DIM>;
var<workgroup> key: array<f32, KEY_DIM>;
var<workgroup> lanes: array<f32, 66>;
var<workgroup> results: array<u32, 32>;

// Of one column with the key, or with the query.
fn column_sum(thread: u32, with_query: bool) -> f32 {
    var walk: Walk;
    for (var i = 0u; i < 32u; i++) {
        var sum = 0.0f;
        for (var k = walk_lane(i); k < KEY_DIM; k += 32u) {
            sum = sum + select(key[k], query[k], with_query) * current[k * COLUMNS + thread];
        }
        walk_add(&walk, i, sum);
    }
    return walk.total;
}

fn store_rows(thread: u32, begin: u32, end: u32) {
    for (var w = (begin >> 1u) + thread; w <= ((end - 1u) >> 1u); w += 32u) {
        let low = max(2u * w, begin) - begin;
        let high = min(2u * w + 1u, end - 1u) - begin;
        out_put(w, begin, end, results[low], results[high]);
    }
}

@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let id = flat_group(group, groups);
    let tile = id % step.z;
    let head = (id / step.z) % VALUE_HEADS;
    let sequence = id / (step.z * VALUE_HEADS);
    if (sequence > step.y) { return; }
    let first = tile * COLUMNS;
    let width = min(COLUMNS, VALUE_DIM - first);
    let out_columns = VALUE_HEADS * VALUE_DIM;
    if (sequence == step.y) {
        // Rows of no sequence stand before the first and after the last.
        results[thread] = 0u;
        workgroupBarrier();
        for (var t = 0u; t < step.x; t++) {
            if (t < seq_rows[0] || t >= seq_rows[step.y]) {
                let begin = t * out_columns + head * VALUE_DIM + first;
                store_rows(thread, begin, begin + width);
            }
        }
        return;
    }
    let mine = thread < width;
    let column = first + thread;
    let slot = state_read[sequence];
    for (var k = 0u; k < KEY_DIM; k++) {
        if (mine) {
            var s = 0.0f;
            if (slot != NONE) { s = state[((slot * VALUE_HEADS + head) * KEY_DIM + k) * VALUE_DIM + column]; }
            current[k * COLUMNS + thread] = s;
        }
    }
    let key_head = head / (VALUE_HEADS / KEY_HEADS);
    let row_columns = 2u * KEY_HEADS * KEY_DIM + VALUE_HEADS * VALUE_DIM;
    for (var t = seq_rows[sequence]; t < seq_rows[sequence + 1u]; t++) {
        let q_base = t * row_columns + key_head * KEY_DIM;
        let k_base = q_base + KEY_HEADS * KEY_DIM;
        var q_squares = 0.0f;
        var k_squares = 0.0f;
        for (var k = thread; k < KEY_DIM; k += 32u) {
            let q_value = qkv_at(q_base + k);
            let k_value = qkv_at(k_base + k);
            q_squares = q_squares + q_value * q_value;
            k_squares = k_squares + k_value * k_value;
        }
        lanes[thread] = q_squares;
        lanes[thread + 33u] = k_squares;
        workgroupBarrier();
        let q_norm = contract_rsqrt(fold_lanes(0u) + L2_EPS);
        let k_norm = contract_rsqrt(fold_lanes(33u) + L2_EPS);
        for (var k = thread; k < KEY_DIM; k += 32u) {
            query[k] = (qkv_at(q_base + k) * q_norm) * SCALE;
            key[k] = qkv_at(k_base + k) * k_norm;
        }
        workgroupBarrier();
        if (mine) {
            let gate = t * VALUE_HEADS + head;
            for (var k = 0u; k < KEY_DIM; k++) {
                current[k * COLUMNS + thread] = current[k * COLUMNS + thread] * decay[gate];
            }
            let value = qkv_at(t * row_columns + 2u * KEY_HEADS * KEY_DIM + head * VALUE_DIM + column);
            let delta = (value - column_sum(thread, false)) * beta[gate];
            for (var k = 0u; k < KEY_DIM; k++) {
                let at = k * COLUMNS + thread;
                current[at] = current[at] + key[k] * delta;
            }
            results[thread] = round_bf16(column_sum(thread, true));
            let to = state_write[t];
            if (to != NONE) {
                for (var k = 0u; k < KEY_DIM; k++) {
                    state[((to * VALUE_HEADS + head) * KEY_DIM + k) * VALUE_DIM + column] = current[k * COLUMNS + thread];
                }
            }
        }
        workgroupBarrier();
        let begin = t * out_columns + head * VALUE_DIM + first;
        store_rows(thread, begin, begin + width);
    }
}
