//! Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a
//! counter-based generator, so that a draw depends on seed and position and on nothing else.

const M0: u32 = 0xd251_1f53;
const M1: u32 = 0xcd9e_8d57;
const W0: u32 = 0x9e37_79b9;
const W1: u32 = 0xbb67_ae85;

/// Ten rounds of Philox4x32.
#[inline]
pub fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [mut c0, mut c1, mut c2, mut c3] = counter;
    let [mut k0, mut k1] = key;
    for _ in 0..10 {
        let p0 = u64::from(M0) * u64::from(c0);
        let p1 = u64::from(M1) * u64::from(c2);
        (c0, c1, c2, c3) = (
            (p1 >> 32) as u32 ^ c1 ^ k0,
            p1 as u32,
            (p0 >> 32) as u32 ^ c3 ^ k1,
            p0 as u32,
        );
        k0 = k0.wrapping_add(W0);
        k1 = k1.wrapping_add(W1);
    }
    [c0, c1, c2, c3]
}

/// 64 random bits for one token position under one seed: words 1 (upper half) and 0 (lower half)
/// of `philox([position, 0, 0, 0], [low half of seed, high half of seed])`.
#[inline]
pub fn draw_u64(seed: u64, position: u32) -> u64 {
    let words = philox([position, 0, 0, 0], [seed as u32, (seed >> 32) as u32]);
    u64::from(words[1]) << 32 | u64::from(words[0])
}
