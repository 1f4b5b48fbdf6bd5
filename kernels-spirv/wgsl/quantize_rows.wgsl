// s8 codes with one scale a row; one workgroup a row.
//! use grid bf16 div code absmax
//! read bf16 x
//! write i8 codes
override K: u32;

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> codes: array<atomic<u32>>;
@group(0) @binding(2) var<storage, read_write> scale: array<f32>;
// x: rows
@group(0) @binding(3) var<uniform> step: vec4<u32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = flat_group(group, groups);
    if (row >= step.x) { return; }
    let scaling = row_scale(row_absmax(thread, row * K));
    if (thread == 0u) { scale[row] = scaling.scale; }
    let begin = row * K;
    let end = begin + K;
    for (var w = (begin >> 2u) + thread; w <= ((end - 1u) >> 2u); w += 64u) {
        var word = 0u;
        for (var i = 0u; i < 4u; i++) {
            let e = clamp(4u * w + i, begin, end - 1u);
            word = word | (code(x_at(e), scaling) << (8u * i));
        }
        codes_put(w, begin, end, word);
    }
}
