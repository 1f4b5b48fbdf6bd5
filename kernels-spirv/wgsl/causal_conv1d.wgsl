// Causal depthwise convolution with SiLU. An invocation takes two channels of one sequence through all
// its rows; it alone reads and writes their history.
//! use grid bf16 div exp gates
//! read bf16 x
//! write bf16 state out
override CHANNELS: u32;
// taps
override TAPS: u32;
override HISTORY: u32 = max((TAPS - 1u) * 64u, 1u);

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read> seq_rows: array<u32>;
@group(0) @binding(3) var<storage, read> state_read: array<u32>;
@group(0) @binding(4) var<storage, read> state_write: array<u32>;
@group(0) @binding(5) var<storage, read_write> state: array<atomic<u32>>;
@group(0) @binding(6) var<storage, read_write> out: array<atomic<u32>>;
// x: rows, y: sequences, z: workgroups for the channels of a row
@group(0) @binding(7) var<uniform> step: vec4<u32>;

// By invocation, oldest first; two channels a word.
var<workgroup> history: array<u32, HISTORY>;

fn both(c: u32, at: u32) -> u32 {
    if (c + 1u == CHANNELS) { return x_bits(at); }
    return x_bits(at) | (x_bits(at + 1u) << 16u);
}

fn stored(at: u32) -> u32 { return half_of(atomicLoad(&state[at >> 1u]), at); }

// Rows of an odd number of channels may start in the middle of a word.
fn put_state(c: u32, at: u32, word: u32) {
    let end = at + select(2u, 1u, c + 1u == CHANNELS);
    if ((at & 1u) == 1u) {
        state_put(at >> 1u, at, at + 1u, 0u, word & 0xffffu);
        if (end > at + 1u) { state_put((at >> 1u) + 1u, at + 1u, end, word >> 16u, 0u); }
    } else {
        state_put(at >> 1u, at, end, word & 0xffffu, word >> 16u);
    }
}

fn put_out(c: u32, at: u32, word: u32) {
    let end = at + select(2u, 1u, c + 1u == CHANNELS);
    if ((at & 1u) == 1u) {
        out_put(at >> 1u, at, at + 1u, 0u, word & 0xffffu);
        if (end > at + 1u) { out_put((at >> 1u) + 1u, at + 1u, end, word >> 16u, 0u); }
    } else {
        out_put(at >> 1u, at, end, word & 0xffffu, word >> 16u);
    }
}

fn convolve(thread: u32, c: u32, half: u32, current: u32) -> u32 {
    var sum = 0.0f;
    for (var j = 0u; j < TAPS; j++) {
        var word = current;
        if (j + 1u < TAPS) { word = history[j * 64u + thread]; }
        sum = sum + weight[(c + half) * TAPS + j] * widen((word >> (16u * half)) & 0xffffu);
    }
    return round_bf16(silu(plus_zero(sum)));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let id = flat_group(group, groups);
    let sequence = id / step.z;
    let c = 2u * ((id % step.z) * 64u + thread);
    if (c >= CHANNELS || sequence > step.y) { return; }
    if (sequence == step.y) {
        // Rows of no sequence stand before the first and after the last.
        for (var t = 0u; t < step.x; t++) {
            if (t < seq_rows[0] || t >= seq_rows[step.y]) { put_out(c, t * CHANNELS + c, 0u); }
        }
        return;
    }
    let slot = state_read[sequence];
    for (var j = 0u; j + 1u < TAPS; j++) {
        var word = 0u;
        if (slot != NONE) {
            let at = (slot * (TAPS - 1u) + j) * CHANNELS + c;
            word = stored(at);
            if (c + 1u < CHANNELS) { word = word | (stored(at + 1u) << 16u); }
        }
        history[j * 64u + thread] = word;
    }
    for (var t = seq_rows[sequence]; t < seq_rows[sequence + 1u]; t++) {
        let current = both(c, t * CHANNELS + c);
        var word = convolve(thread, c, 0u, current);
        if (c + 1u < CHANNELS) { word = word | (convolve(thread, c, 1u, current) << 16u); }
        put_out(c, t * CHANNELS + c, word);
        for (var j = 0u; j + 2u < TAPS; j++) { history[j * 64u + thread] = history[(j + 1u) * 64u + thread]; }
        if (TAPS > 1u) { history[(TAPS - 2u) * 64u + thread] = current; }
        let to = state_write[t];
        if (to != NONE) {
            for (var j = 0u; j + 1u < TAPS; j++) {
                put_state(c, (to * (TAPS - 1u) + j) * CHANNELS + c, history[j * 64u + thread]);
            }
        }
    }
}
