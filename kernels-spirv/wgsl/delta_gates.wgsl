// Decay and write strength of the delta rule.
//! use grid bf16 div exp log1p gates
//! read bf16 a b
override HEADS: u32;

@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read> b: array<u32>;
@group(0) @binding(2) var<storage, read> a_log: array<f32>;
@group(0) @binding(3) var<storage, read> dt_bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> decay: array<f32>;
@group(0) @binding(5) var<storage, read_write> beta: array<f32>;
// x: elements of `decay`
@group(0) @binding(6) var<uniform> step: vec4<u32>;

// Clamped to the largest finite f32: 0 * inf would poison the state for good.
fn finite(x: f32) -> f32 {
    let most = bitcast<f32>(0x7f7fffffu);
    return select(x, most, x > most);
}

fn softplus(x: f32) -> f32 { return select(contract_log1p(contract_exp(x)), x, x > 20.0f); }

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let e = flat_group(group, groups) * 64u + thread;
    if (e >= step.x) { return; }
    let head = e % HEADS;
    let rate = finite(contract_exp(a_log[head]));
    let amount = finite(softplus(a_at(e) + dt_bias[head]));
    decay[e] = contract_exp(-(rate * amount));
    beta[e] = sigmoid(b_at(e));
}
