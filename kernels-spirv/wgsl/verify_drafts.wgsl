// Accepted drafts of each sequence; one invocation a sequence.
//! use grid

@group(0) @binding(0) var<storage, read> tokens: array<u32>;
@group(0) @binding(1) var<storage, read> token_ids: array<u32>;
@group(0) @binding(2) var<storage, read> out_rows: array<u32>;
@group(0) @binding(3) var<storage, read> seq_outs: array<u32>;
@group(0) @binding(4) var<storage, read_write> accepted: array<u32>;
// x: sequences
@group(0) @binding(5) var<uniform> step: vec4<u32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let sequence = flat_group(group, groups) * 64u + thread;
    if (sequence >= step.x) { return; }
    var count = 0u;
    // The last output has no draft behind it.
    for (var i = seq_outs[sequence]; i + 1u < seq_outs[sequence + 1u]; i++) {
        if (token_ids[out_rows[i] + 1u] != tokens[i]) { break; }
        count += 1u;
    }
    accepted[sequence] = count;
}
