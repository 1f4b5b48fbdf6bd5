//! The random numbers of one tensor: Philox, keyed by the seed, counted from zero under the tensor's
//! name.
//!
//! Every number is the sum of two uniform ones, a triangle around zero: integers only, four codes from
//! two words at once. Invariant: a number depends on seed, name and index, not on how many are asked
//! for or by how many threads.

use layerlet_core::numerics::philox;
use rayon::prelude::*;

/// Blocks that one thread computes at a time.
const BLOCKS: usize = 1 << 12;

/// The largest code, and minus the smallest.
pub const CODE_MAX: i8 = i8::MAX;
/// The largest integer, and minus the smallest.
pub const INTEGER_MAX: i16 = i16::MAX;

/// The random numbers of one tensor.
#[derive(Clone, Copy)]
pub struct Stream {
    key: [u32; 2],
    name: [u32; 2],
}

impl Stream {
    /// The numbers of this tensor under this seed.
    pub fn new(seed: u64, name: &str) -> Stream {
        Stream {
            key: halves(seed),
            name: halves(fnv1a(name)),
        }
    }

    /// Codes in -127..=127.
    pub fn codes(self, count: usize) -> Vec<i8> {
        fill(count, |block| {
            let sums = self.sums(block, 0x7f7f_7f7f).to_le_bytes();
            sums.map(|sum: u8| sum.wrapping_sub(CODE_MAX as u8) as i8)
        })
    }

    /// What is made of integers in -32767..=32767.
    pub fn integers<T: Copy + Default + Send>(
        self,
        count: usize,
        make: impl Fn(i16) -> T + Sync,
    ) -> Vec<T> {
        fill(count, |block| {
            let sums = self.sums(block, 0x7fff_7fff);
            let sums = [0, 16, 32, 48].map(|shift| (sums >> shift) as u16);
            sums.map(|sum| make(sum.wrapping_sub(INTEGER_MAX as u16) as i16))
        })
    }

    /// Sums of pairs of numbers of a block, all at once: the mask clears the bit that a sum carries to.
    #[inline(always)]
    fn sums(self, block: u64, mask: u32) -> u64 {
        let ([low, high], [name_low, name_high]) = (halves(block), self.name);
        let [a, b, c, d] = philox([low, high, name_low, name_high], self.key).map(|w| w & mask);
        u64::from(a + b) | u64::from(c + d) << 32
    }
}

/// Numbers of as many blocks as are needed; the last one may be cut.
fn fill<T: Copy + Default + Send, const N: usize>(
    count: usize,
    block: impl Fn(u64) -> [T; N] + Sync,
) -> Vec<T> {
    let mut all = vec![T::default(); count];
    let pieces = all.par_chunks_mut(BLOCKS * N).enumerate();
    pieces.for_each(|(piece, numbers)| {
        let first = (piece * BLOCKS) as u64;
        let (whole, rest) = numbers.as_chunks_mut();
        let end = first + whole.len() as u64;
        for (index, out) in (first..).zip(whole) {
            *out = block(index);
        }
        rest.copy_from_slice(&block(end)[..rest.len()]);
    });
    all
}

fn halves(wide: u64) -> [u32; 2] {
    [wide as u32, (wide >> 32) as u32]
}

/// FNV-1a in 64 bits.
fn fnv1a(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Codes of one block.
    const CODES: usize = 8;
    /// Integers of one block.
    const INTEGERS: usize = 4;

    #[test]
    fn fnv1a_of_known_texts() {
        let check = |text, expect: u64| assert_eq!(fnv1a(text), expect, "{text:?}");
        check("", 0xcbf2_9ce4_8422_2325);
        check("a", 0xaf63_dc4c_8601_ec8c);
        check("foobar", 0x8594_4171_f739_67e8);
    }

    #[test]
    fn a_number_does_not_depend_on_how_many_there_are() {
        let stream = Stream::new(7, "name");
        let many = stream.codes(3 * CODES * BLOCKS + 5);
        let wide = stream.integers(3 * INTEGERS * BLOCKS + 3, |n| n);
        for count in [0, 1, 7, 8, 9, CODES * BLOCKS, CODES * BLOCKS + 1] {
            assert!(stream.codes(count) == many[..count], "{count}");
            assert!(stream.integers(count, |n| n) == wide[..count], "{count}");
        }
    }

    #[test]
    fn seeds_and_names_give_other_numbers() {
        let codes = |seed, name| Stream::new(seed, name).codes(64);
        let all = [
            codes(0, "a"),
            codes(1, "a"),
            codes(1 << 32, "a"),
            codes(0, "b"),
        ];
        for (i, one) in all.iter().enumerate() {
            assert!(!all[i + 1..].contains(one), "{i}");
        }
    }

    /// All 255 codes as often as two dice of 128 sides show them.
    #[test]
    fn codes_are_a_triangle() {
        const COUNT: usize = 1 << 21;
        let mut seen = [0usize; 256];
        for code in Stream::new(3, "triangle").codes(COUNT) {
            seen[(i16::from(code) + 128) as usize] += 1;
        }
        assert_eq!(seen[0], 0, "-128 is no code");
        for (code, count) in (-127..=127i32).zip(&seen[1..]) {
            let expect = (COUNT >> 14) * (128 - code.unsigned_abs() as usize);
            // Five standard deviations of a count, and a little for the smallest.
            let off = count.abs_diff(expect);
            assert!(
                off * off <= 25 * expect,
                "{code}: {count} times, expected {expect}"
            );
        }
    }
}
