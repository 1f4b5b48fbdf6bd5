@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

override LANES: u32 = 32;
var<workgroup> lanes: array<f32, LANES>;
var<workgroup> first: f32;

@compute @workgroup_size(LANES)
fn reduce(
    @builtin(local_invocation_index) lane: u32,
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
) {
    let row = arrayLength(&a) / groups.x;
    var sum = 0.0;
    for (var k = lane; k < row; k += LANES) {
        sum += a[group.x * row + k];
    }
    lanes[lane] = sum;
    workgroupBarrier();
    for (var stride = LANES / 2u; stride > 0u; stride /= 2u) {
        if lane < stride {
            lanes[lane] += lanes[lane + stride];
        }
        workgroupBarrier();
    }
    if lane == 0u {
        first = lanes[0];
    }
    let total = workgroupUniformLoad(&first);
    y[group.x * LANES + local.x] = total + f32(lane);
}
