struct Totals {
    count: atomic<u32>,
    least: atomic<i32>,
    most: atomic<u32>,
    bits: atomic<u32>,
    toggled: atomic<u32>,
    kept: atomic<u32>,
    winner: atomic<u32>,
    down: atomic<i32>,
}

@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read_write> bins: array<atomic<u32>>;
@group(0) @binding(2) var<storage, read_write> totals: Totals;

var<workgroup> here: array<atomic<u32>, 16>;

@compute @workgroup_size(64)
fn atomics(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    if local < 16u {
        atomicStore(&here[local], 0u);
    }
    workgroupBarrier();
    let x = a[id.x];
    atomicAdd(&here[x % 16u], 1u);
    workgroupBarrier();
    if local < 16u {
        atomicAdd(&bins[local], atomicLoad(&here[local]));
    }
    atomicAdd(&totals.count, 1u);
    atomicMin(&totals.least, bitcast<i32>(x));
    atomicMax(&totals.most, x);
    atomicOr(&totals.bits, x);
    atomicXor(&totals.toggled, x);
    atomicAnd(&totals.kept, x);
    atomicSub(&totals.down, bitcast<i32>(x));
    if id.x == 0u {
        atomicExchange(&totals.winner, 7u);
        let tried = atomicCompareExchangeWeak(&totals.winner, 7u, 9u);
        if tried.exchanged && tried.old_value == 7u {
            let again = atomicCompareExchangeWeak(&totals.winner, 7u, 11u);
            if !again.exchanged {
                atomicAdd(&totals.winner, again.old_value);
            }
        }
    }
}
