// Offsets and slots of the rows of one rank's experts, moved to the front.
//! use grid
override FIRST: u32;
// experts of the rank
override LOCAL: u32;

@group(0) @binding(0) var<storage, read> offsets: array<u32>;
@group(0) @binding(1) var<storage, read> slot_of_row: array<u32>;
@group(0) @binding(2) var<storage, read_write> local_offsets: array<u32>;
@group(0) @binding(3) var<storage, read_write> local_slot_of_row: array<u32>;
// x: pairs
@group(0) @binding(4) var<uniform> step: vec4<u32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = flat_group(group, groups) * 64u + thread;
    let start = offsets[FIRST];
    if (i <= LOCAL) { local_offsets[i] = offsets[FIRST + i] - start; }
    if (i < step.x) {
        var slot = NONE;
        if (i < offsets[FIRST + LOCAL] - start) { slot = slot_of_row[start + i]; }
        local_slot_of_row[i] = slot;
    }
}
