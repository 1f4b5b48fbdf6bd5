// bf16 experts, rows grouped by expert: sixteen columns of one row a workgroup.
//! use grid bf16 fold columns_bf16 expert
//! read bf16 x weight
//! write bf16 out
override N: u32;
override K: u32;
override EXPERTS: u32;
// experts per token where x has one row a token; 0 where it has one a pair
override FAN_OUT: u32;

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> weight: array<u32>;
@group(0) @binding(2) var<storage, read> offsets: array<u32>;
@group(0) @binding(3) var<storage, read> slot_of_row: array<u32>;
@group(0) @binding(4) var<storage, read_write> out: array<atomic<u32>>;
// x: pairs, y: workgroups for the columns
@group(0) @binding(5) var<uniform> step: vec4<u32>;

fn value(row: u32, n: u32, first: u32) -> u32 {
    return select(column(n - first), 0u, expert_of(row) == EXPERTS);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let id = flat_group(group, groups);
    let row = id / step.y;
    if (row >= step.x) { return; }
    let first = 16u * (id % step.y);
    let expert = expert_of(row);
    var source = row;
    if (FAN_OUT != 0u) { source = slot_of_row[row] / max(FAN_OUT, 1u); }
    let empty = expert == EXPERTS;
    sum_columns(thread, select(source, 0u, empty) * K, select(expert, 0u, empty) * N * K, first);
    let begin = row * N;
    for (var w = ((begin + first) >> 1u) + thread; w <= ((begin + min(first + 15u, N - 1u)) >> 1u); w += 64u) {
        let low = max(2u * w, begin + first) - begin;
        let high = min(2u * w + 1u, begin + min(first + 15u, N - 1u)) - begin;
        out_put(w, begin + first, begin + min(first + 16u, N), value(row, low, first), value(row, high, first));
    }
}
