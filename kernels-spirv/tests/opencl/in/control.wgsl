const PRIMES = array<u32, 8>(2, 3, 5, 7, 11, 13, 17, 19);

@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;

var<private> steps: u32 = 3u;

fn step(at: ptr<function, u32>, by: u32) {
    steps += 1u;
    *at = *at * PRIMES[by & 7u] + a[by % arrayLength(&a)];
}

fn classify(x: u32) -> u32 {
    switch x % 7u {
        case 0u: { return 100u; }
        case 1u, 2u: { steps += 10u; }
        case 3u: {
            if x > 1000u {
                break;
            }
            steps += 20u;
        }
        default: { return x & 15u; }
    }
    return steps;
}

@compute @workgroup_size(64)
fn control(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x;
    if i >= arrayLength(&y) {
        return;
    }
    var value = a[i];
    var odd: bool;
    for (var k = 0u; k < 12u; k++) {
        if k == value % 12u {
            continue;
        }
        switch i32(value & 3u) {
            case -1: { value = 0u; }
            case 2: { continue; }
            default: {}
        }
        step(&value, k);
        odd = !odd;
        if value % 1000u == 0u {
            break;
        }
    }
    var turns = 0u;
    loop {
        turns += 1u;
        if turns > 40u {
            break;
        }
        continuing {
            value ^= value >> 3u;
            break if (value & 0xffu) < 8u;
        }
    }
    let both = vec2(odd, value > 5u);
    y[i] = classify(value) + 1000u * turns + select(0u, 500000u, odd && all(both)) + select(0u, 7u, any(both));
}
