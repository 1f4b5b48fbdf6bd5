// Largest magnitude of row elements `base ..  base + K`, as the maximum of the bits without sign: a NaN
// is above infinity. For workgroups of 64.
var<workgroup> maxima: array<u32, 64>;

fn row_absmax(thread: u32, base: u32) -> f32 {
    var most = 0u;
    for (var i = thread; i < K; i += 64u) { most = max(most, x_bits(base + i) & 0x7fffu); }
    maxima[thread] = most;
    workgroupBarrier();
    for (var i = 0u; i < 64u; i++) { most = max(most, maxima[i]); }
    return widen(most);
}
