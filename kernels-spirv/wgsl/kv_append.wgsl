// Copies keys and values to the places their positions have in the page table; one workgroup a row.
//! use grid bf16
//! read bf16 k v
//! write bf16 k_cache v_cache
override COLUMNS: u32;
override PAGE_SIZE: u32;
override PAGES_PER_SEQUENCE: u32;

@group(0) @binding(0) var<storage, read> k: array<u32>;
@group(0) @binding(1) var<storage, read> v: array<u32>;
@group(0) @binding(2) var<storage, read> positions: array<u32>;
@group(0) @binding(3) var<storage, read> row_seq: array<u32>;
@group(0) @binding(4) var<storage, read> page_table: array<u32>;
@group(0) @binding(5) var<storage, read_write> k_cache: array<atomic<u32>>;
@group(0) @binding(6) var<storage, read_write> v_cache: array<atomic<u32>>;
// x: rows
@group(0) @binding(7) var<uniform> step: vec4<u32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let t = flat_group(group, groups);
    if (t >= step.x) { return; }
    let sequence = row_seq[t];
    if (sequence == NONE) { return; }
    let position = positions[t];
    let page = page_table[sequence * PAGES_PER_SEQUENCE + position / PAGE_SIZE];
    let begin = (page * PAGE_SIZE + position % PAGE_SIZE) * COLUMNS;
    let end = begin + COLUMNS;
    // Elements outside of the row are never stored, so that what is read for them does not matter.
    let from_row = t * COLUMNS - begin;
    for (var w = (begin >> 1u) + thread; w <= ((end - 1u) >> 1u); w += 64u) {
        let low = from_row + max(2u * w, begin);
        let high = from_row + min(2u * w + 1u, end - 1u);
        k_cache_put(w, begin, end, k_bits(low), k_bits(high));
        v_cache_put(w, begin, end, v_bits(low), v_bits(high));
    }
}
