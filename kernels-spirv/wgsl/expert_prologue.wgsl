// A stable counting sort of the pairs by expert, in one workgroup: each invocation counts and places
// the pairs of its experts.
//! use grid
override EXPERTS: u32;

@group(0) @binding(0) var<storage, read> ids: array<u32>;
@group(0) @binding(1) var<storage, read_write> offsets: array<u32>;
@group(0) @binding(2) var<storage, read_write> slot_of_row: array<u32>;
@group(0) @binding(3) var<storage, read_write> row_of_slot: array<u32>;
// x: pairs
@group(0) @binding(4) var<uniform> step: vec4<u32>;

var<workgroup> starts: array<u32, EXPERTS>;
var<workgroup> total: u32;

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) thread: u32) {
    for (var e = thread; e < EXPERTS; e += 256u) {
        var count = 0u;
        for (var slot = 0u; slot < step.x; slot++) { count += select(0u, 1u, ids[slot] == e); }
        starts[e] = count;
    }
    workgroupBarrier();
    if (thread == 0u) {
        var row = 0u;
        for (var e = 0u; e < EXPERTS; e++) {
            let count = starts[e];
            starts[e] = row;
            offsets[e] = row;
            row += count;
        }
        offsets[EXPERTS] = row;
        total = row;
    }
    workgroupBarrier();
    for (var e = thread; e < EXPERTS; e += 256u) {
        var row = starts[e];
        for (var slot = 0u; slot < step.x; slot++) {
            if (ids[slot] == e) {
                slot_of_row[row] = slot;
                row_of_slot[slot] = row;
                row += 1u;
            }
        }
    }
    for (var i = thread; i < step.x; i += 256u) {
        if (ids[i] == NONE) { row_of_slot[i] = NONE; }
        if (i >= total) { slot_of_row[i] = NONE; }
    }
}
