@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(64)
fn subgroups(
    @builtin(global_invocation_id) id: vec3<u32>,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) count: u32,
) {
    let x = a[id.x];
    let at = id.x * 12u;
    y[at] = subgroupAdd(x);
    y[at + 1u] = subgroupMax(x) - subgroupMin(x);
    y[at + 2u] = subgroupExclusiveAdd(x);
    y[at + 3u] = subgroupShuffleXor(x, 1u) + subgroupShuffleXor(x, 8u);
    y[at + 4u] = subgroupShuffle(x, (lane + 3u) % size);
    y[at + 5u] = subgroupBroadcast(x, 5u);
    y[at + 6u] = u32(subgroupAny(x > 0xf0000000u)) + 2u * u32(subgroupAll(x > 1u));
    var sum = bitcast<f32>((x & 0x7fffffu) | 0x3f800000u);
    for (var stride = size / 2u; stride > 0u; stride /= 2u) {
        sum += subgroupShuffleXor(sum, stride);
    }
    y[at + 7u] = bitcast<u32>(sum);
    y[at + 8u] = lane + 100u * size + 10000u * subgroup + 1000000u * count;
    y[at + 9u] = subgroupShuffleDown(x, 1u) * u32(lane + 1u < size);
    y[at + 10u] = subgroupShuffleUp(x, 1u) * u32(lane > 0u);
    subgroupBarrier();
    y[at + 11u] = bitcast<u32>(subgroupMin(bitcast<i32>(x)));
}
