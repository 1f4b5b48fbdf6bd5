// Sixteen columns of a bf16 linear: two teams of 32 lanes, eight columns each. Lane `l` adds the
// products of k = l, l + 32, ..; `fold_lanes(33 * c)` is column `c` after the barrier.
var<workgroup> lanes: array<f32, 528>;

fn sum_columns(thread: u32, x_base: u32, weight_base: u32, first: u32) {
    let lane = thread & 31u;
    let team = thread >> 5u;
    for (var c = team * 8u; c < team * 8u + 8u; c++) {
        var sum = 0.0f;
        if (first + c < N) {
            let at = weight_base + (first + c) * K;
            for (var k = lane; k < K; k += 32u) {
                sum = sum + x_at(x_base + k) * weight_at(at + k);
            }
        }
        lanes[33u * c + lane] = sum;
    }
    workgroupBarrier();
}

fn column(c: u32) -> u32 { return round_bf16(fold_lanes(33u * c)); }
