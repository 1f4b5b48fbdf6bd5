struct Inner {
    at: vec4<f32>,
    ids: array<u32, 4>,
}
struct Expert {
    weight: f32,
    id: u32,
    flags: vec2<u32>,
    inner: array<Inner, 2>,
}
struct Params {
    scale: f32,
    count: u32,
    window: vec2<i32>,
    steps: array<vec4<u32>, 2>,
}

@group(0) @binding(3) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> experts: array<Expert>;
@group(0) @binding(0) var<storage, read> header: Inner;

fn scaled(expert: Expert) -> Expert {
    var out = expert;
    out.weight *= params.scale;
    out.inner[1].at[expert.id % 4u] = header.at.y;
    out.flags.y += header.ids[expert.id & 3u];
    return out;
}

@compute @workgroup_size(32)
fn structs(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < params.count {
        experts[id.x] = scaled(experts[id.x]);
        experts[id.x].inner[0].ids[id.x & 3u] += params.steps[id.x & 1u].z;
        experts[id.x].flags.x = bitcast<u32>(params.window.y - params.window.x);
    }
}
