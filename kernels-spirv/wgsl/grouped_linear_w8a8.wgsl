// s8 experts, rows grouped by expert: sixteen columns of one row a workgroup.
//! use grid bf16 dequantize columns_w8a8 expert
//! read i8 codes weight
//! write bf16 out
override N: u32;
override K: u32;
override EXPERTS: u32;
// experts per token where codes have one row a token; 0 where they have one a pair
override FAN_OUT: u32;

@group(0) @binding(0) var<storage, read> codes: array<u32>;
@group(0) @binding(1) var<storage, read> scale: array<f32>;
@group(0) @binding(2) var<storage, read> weight: array<u32>;
@group(0) @binding(3) var<storage, read> weight_scale: array<f32>;
@group(0) @binding(4) var<storage, read> offsets: array<u32>;
@group(0) @binding(5) var<storage, read> slot_of_row: array<u32>;
@group(0) @binding(6) var<storage, read_write> out: array<atomic<u32>>;
// x: pairs, y: workgroups for the columns
@group(0) @binding(7) var<uniform> step: vec4<u32>;

fn source_of(row: u32) -> u32 {
    if (FAN_OUT != 0u) { return slot_of_row[row] / max(FAN_OUT, 1u); }
    return row;
}

fn value(row: u32, n: u32, first: u32) -> u32 {
    let expert = expert_of(row);
    if (expert == EXPERTS) { return 0u; }
    return dequantized(column_sum(n - first), scale[source_of(row)], weight_scale[expert * N + n]);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let id = flat_group(group, groups);
    let row = id / step.y;
    if (row >= step.x) { return; }
    let first = 16u * (id % step.y);
    let expert = expert_of(row);
    let empty = expert == EXPERTS;
    sum_columns(thread, select(source_of(row), 0u, empty) * K, select(expert, 0u, empty) * N * K, first);
    let begin = row * N;
    for (var w = ((begin + first) >> 1u) + thread; w <= ((begin + min(first + 15u, N - 1u)) >> 1u); w += 64u) {
        let low = max(2u * w, begin + first) - begin;
        let high = min(2u * w + 1u, begin + min(first + 15u, N - 1u)) - begin;
        out_put(w, begin + first, begin + min(first + 16u, N), value(row, low, first), value(row, high, first));
    }
}
