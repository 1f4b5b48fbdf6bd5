// Causal softmax attention over pages with the output gate: one workgroup a row and head. Scores: two
// teams of 32 lanes, a position each. Values: an invocation takes columns d, d + 64, ..
//! use grid bf16 div exp gates fold walk
//! read bf16 q q_gate k_cache v_cache
//! write bf16 out
override HEADS: u32;
override GROUPS: u32;
override DIM: u32;
override PAGE_SIZE: u32;
override PAGES_PER_SEQUENCE: u32;
override SCALE: f32;

@group(0) @binding(0) var<storage, read> q: array<u32>;
@group(0) @binding(1) var<storage, read> q_gate: array<u32>;
@group(0) @binding(2) var<storage, read> k_cache: array<u32>;
@group(0) @binding(3) var<storage, read> v_cache: array<u32>;
@group(0) @binding(4) var<storage, read> positions: array<u32>;
@group(0) @binding(5) var<storage, read> row_seq: array<u32>;
@group(0) @binding(6) var<storage, read> page_table: array<u32>;
@group(0) @binding(7) var<storage, read_write> out: array<atomic<u32>>;
// x: rows
@group(0) @binding(8) var<uniform> step: vec4<u32>;

var<workgroup> lanes: array<f32, 2112>;
var<workgroup> scores: array<f32, 64>;
// first element of each position's key, and of its value
var<workgroup> places: array<u32, 64>;
var<workgroup> acc: array<f32, DIM>;

fn value_sum(d: u32, count: u32) -> f32 {
    var walk: Walk;
    for (var i = 0u; i < 32u; i++) {
        let j = walk_lane(i);
        var sum = 0.0f;
        if (j < count) { sum = sum + scores[j] * v_cache_at(places[j] + d); }
        if (j + 32u < count) { sum = sum + scores[j + 32u] * v_cache_at(places[j + 32u] + d); }
        walk_add(&walk, i, sum);
    }
    return walk.total;
}

fn gated(d: u32, sum: f32, gate_base: u32) -> u32 {
    let gate_value = rounded(sigmoid(q_gate_at(gate_base + d)));
    return round_bf16(rounded(div(acc[d], sum)) * gate_value);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let id = flat_group(group, groups);
    let t = id / HEADS;
    let head = id % HEADS;
    if (t >= step.x) { return; }
    let begin = id * DIM;
    let end = begin + DIM;
    let sequence = row_seq[t];
    if (sequence == NONE) {
        for (var w = (begin >> 1u) + thread; w <= ((end - 1u) >> 1u); w += 64u) { out_put(w, begin, end, 0u, 0u); }
        return;
    }
    let position = positions[t];
    let kv_head = head / (HEADS / GROUPS);
    let lane = thread & 31u;
    let team = thread >> 5u;
    var most = 0.0f;
    var sum = 0.0f;
    for (var block = 0u; block <= position; block += 64u) {
        let count = min(64u, position + 1u - block);
        if (thread < count) {
            let p = block + thread;
            let page = page_table[sequence * PAGES_PER_SEQUENCE + p / PAGE_SIZE];
            places[thread] = ((page * PAGE_SIZE + p % PAGE_SIZE) * GROUPS + kv_head) * DIM;
        }
        workgroupBarrier();
        for (var j = team; j < count; j += 2u) {
            var products = 0.0f;
            for (var k = lane; k < DIM; k += 32u) {
                products = products + q_at(begin + k) * k_cache_at(places[j] + k);
            }
            lanes[33u * j + lane] = products;
        }
        workgroupBarrier();
        var score = 0.0f;
        if (thread < count) { score = fold_lanes(33u * thread) * SCALE; }
        scores[thread] = score;
        workgroupBarrier();
        var block_most = bitcast<f32>(0xff800000u);
        for (var j = 0u; j < count; j++) {
            if (scores[j] > block_most) { block_most = scores[j]; }
        }
        workgroupBarrier();
        scores[thread] = select(0.0f, contract_exp(score - block_most), thread < count);
        workgroupBarrier();
        if (thread < 32u) { lanes[thread] = scores[thread] + scores[thread + 32u]; }
        workgroupBarrier();
        let block_sum = fold_lanes(0u);
        if (block == 0u) {
            most = block_most;
            sum = block_sum;
            for (var d = thread; d < DIM; d += 64u) { acc[d] = value_sum(d, count); }
        } else {
            let larger = select(most, block_most, block_most > most);
            let c = contract_exp(most - larger);
            let c_block = contract_exp(block_most - larger);
            most = larger;
            sum = sum * c + block_sum * c_block;
            for (var d = thread; d < DIM; d += 64u) { acc[d] = acc[d] * c + value_sum(d, count) * c_block; }
        }
        workgroupBarrier();
    }
    let gate_base = id * 2u * DIM + DIM;
    for (var w = (begin >> 1u) + thread; w <= ((end - 1u) >> 1u); w += 64u) {
        let low = max(2u * w, begin) - begin;
        let high = min(2u * w + 1u, end - 1u) - begin;
        out_put(w, begin, end, gated(low, sum, gate_base), gated(high, sum, gate_base));
    }
}
