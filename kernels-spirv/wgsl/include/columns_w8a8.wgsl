// Sixteen columns of an s8 linear: two teams of 32 lanes, eight columns each, exact i32 sums in any
// order; four codes a step where rows start at words.
var<workgroup> sums: array<i32, 528>;

fn sum_columns(thread: u32, x_base: u32, weight_base: u32, first: u32) {
    let lane = thread & 31u;
    let team = thread >> 5u;
    for (var c = team * 8u; c < team * 8u + 8u; c++) {
        var sum = 0;
        if (first + c < N) {
            let at = weight_base + (first + c) * K;
            if (K % 4u == 0u) {
                for (var k = lane; k < K / 4u; k += 32u) {
                    sum = sum + dot4I8Packed(codes[x_base / 4u + k], weight[at / 4u + k]);
                }
            } else {
                for (var k = lane; k < K; k += 32u) {
                    sum = sum + codes_at(x_base + k) * weight_at(at + k);
                }
            }
        }
        sums[33u * c + lane] = sum;
    }
    workgroupBarrier();
}

fn column_sum(c: u32) -> i32 {
    var total = 0;
    for (var lane = 0u; lane < 32u; lane++) { total = total + sums[33u * c + lane]; }
    return total;
}
