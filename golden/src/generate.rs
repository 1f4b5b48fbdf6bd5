//! Input recipes: numbers from a seed, so that inputs are generated and never stored.
//!
//! Element `i` of buffer `name` under `seed` comes from the four words of
//! `philox([low half of i, high half of i, fnv1a(name), 0], [low half of seed, high half of seed])`
//! and from nothing else: a buffer with more rows starts with the rows of the shorter one.

use layerlet_core::buffer::BufferDecl;
use layerlet_core::dtype::DType;
use layerlet_core::numerics::{philox, round_bf16};
use serde::Deserialize;
use std::path::PathBuf;

/// How a buffer is filled. The variants up to `rows` are for floats, the rest for integers (and
/// `constant`, `values` for both).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fill {
    /// Sum of four uniform numbers, of this standard deviation.
    Normal(f32),
    /// Uniform in `[low, high)`.
    Uniform([f32; 2]),
    /// +0 and -0.
    Zero,
    /// Subnormals of the dtype, both signs.
    Subnormal,
    /// Magnitudes from 2^100 to the largest.
    Huge,
    /// Magnitudes from 2^-120 to 2^-100.
    Tiny,
    /// Any finite bit pattern.
    Bits,
    /// Zeros, ones, infinities, NaN and the ends of the range in turn.
    Specials,
    /// Multiples -8..=8 of a step: exact sums that fall on rounding ties, and many equal values.
    Grid(f32),
    /// `2^(low + i % (high - low + 1))` for element `i`.
    Powers([i32; 2]),
    /// Each row (of the first dimension) by the next of these, in turn.
    Rows(Vec<Fill>),
    /// One value everywhere.
    Constant(f64),
    /// These in turn.
    Values(Vec<f64>),
    /// Integers `0..n`.
    Below(u32),
    /// `first, first + 1, ...`
    Count(u32),
    /// `0, n, n, ...` with `n` the last index: of as many sequences as rows the first has all rows.
    Whole,
    /// The numbers `0..elements` in random order.
    Permutation,
    /// s8 codes of the whole range, -128 included.
    Codes,
    /// Expert ids `[T, k]`, distinct in each row.
    Routes {
        /// Number of experts.
        experts: u32,
        /// Which of them are chosen.
        skew: Skew,
    },
    /// What a file holds, whatever the seed.
    Captured(Captured),
}

/// A tensor of a safetensors file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Captured {
    /// Relative to the fixture.
    pub file: PathBuf,
    /// Its name there; dtype and shape are the buffer's.
    pub tensor: String,
}

/// Which experts the rows of [`Fill::Routes`] choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Skew {
    /// Any.
    Uniform,
    /// One expert is in every row.
    Hot,
    /// The last `k` experts take every row.
    Few,
}

/// Random words of one buffer.
#[derive(Clone, Copy)]
pub struct Source {
    key: [u32; 2],
    name: u32,
}

impl Source {
    /// The words of buffer `name` under `seed`.
    pub fn new(seed: u64, name: &str) -> Source {
        Source {
            key: [seed as u32, (seed >> 32) as u32],
            name: fnv1a(name),
        }
    }

    /// Four words for element `i`.
    pub fn words(self, i: u64) -> [u32; 4] {
        philox([i as u32, (i >> 32) as u32, self.name, 0], self.key)
    }
}

fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

/// The bytes of a buffer by a recipe, or what is wrong with the recipe. Captured tensors are read by
/// [`crate::external::tensor`].
pub fn generate(fill: &Fill, decl: &BufferDecl, seed: u64) -> Result<Vec<u8>, String> {
    let source = Source::new(seed, &decl.name);
    match decl.dtype {
        DType::F32 | DType::Bf16 => floats(fill, decl, source),
        DType::I8 | DType::I32 | DType::U32 => integers(fill, decl, source),
    }
}

fn floats(fill: &Fill, decl: &BufferDecl, source: Source) -> Result<Vec<u8>, String> {
    let n = decl.elements();
    let columns = n / decl.shape.first().copied().unwrap_or(1).max(1);
    let narrow = decl.dtype == DType::Bf16;
    let values = (0..n)
        .map(|i| float(fill, i, i / columns.max(1), source, narrow))
        .collect::<Result<Vec<f32>, _>>()?;
    Ok(match narrow {
        false => bytemuck::cast_slice(&values).to_vec(),
        true => values
            .iter()
            .flat_map(|v| round_bf16(*v).to_le_bytes())
            .collect(),
    })
}

const SPECIALS: [f32; 12] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    f32::INFINITY,
    f32::MIN_POSITIVE,
    -3.38e38,
    f32::NAN,
    3.38e38,
    f32::NEG_INFINITY,
    1e-40,
    -1e-40,
];

fn float(fill: &Fill, i: usize, row: usize, source: Source, narrow: bool) -> Result<f32, String> {
    let words = source.words(i as u64);
    let [w, x, ..] = words;
    let sign = x & 0x8000_0000;
    let unit = |w: u32| f64::from(w) / 4_294_967_296.0;
    let scaled = |low: u32, high: u32| {
        let exponent = low + w % (high - low + 1);
        f32::from_bits(sign | exponent << 23 | x & 0x007f_ffff)
    };
    Ok(match fill {
        Fill::Normal(deviation) => {
            let sum: f64 = words.iter().map(|w| unit(*w)).sum();
            ((sum - 2.0) * 1.732_050_807_568_877_2 * f64::from(*deviation)) as f32
        }
        Fill::Uniform([low, high]) => {
            (f64::from(*low) + unit(w) * (f64::from(*high) - f64::from(*low))) as f32
        }
        Fill::Zero => f32::from_bits(sign),
        Fill::Subnormal if narrow => f32::from_bits(sign | w & 0x007f_0000),
        Fill::Subnormal => f32::from_bits(sign | w & 0x007f_ffff),
        Fill::Huge => scaled(227, 253),
        Fill::Tiny => scaled(7, 27),
        Fill::Bits if w & 0x7f80_0000 == 0x7f80_0000 => f32::from_bits(w & 0xff7f_ffff),
        Fill::Bits => f32::from_bits(w),
        Fill::Specials => SPECIALS[i % SPECIALS.len()],
        Fill::Grid(step) => (w % 17) as f32 * step - 8.0 * step,
        Fill::Powers([low, high]) => {
            let exponent = low + (i as i64 % i64::from(high - low + 1)) as i32;
            f32::from_bits(((exponent + 127) as u32) << 23)
        }
        Fill::Rows(fills) if fills.is_empty() => return Err("rows: the list is empty".into()),
        Fill::Rows(fills) => float(&fills[row % fills.len()], i, row, source, narrow)?,
        Fill::Constant(value) => *value as f32,
        Fill::Values(values) => *cycle(values, i)? as f32,
        other => return Err(format!("{other:?} does not fill single floats")),
    })
}

fn cycle<T>(values: &[T], i: usize) -> Result<&T, String> {
    match values.len() {
        0 => Err("values: the list is empty".into()),
        n => Ok(&values[i % n]),
    }
}

fn integers(fill: &Fill, decl: &BufferDecl, source: Source) -> Result<Vec<u8>, String> {
    let n = decl.elements();
    let word = |i: usize| source.words(i as u64)[0];
    let each = |f: &dyn Fn(usize) -> i64| (0..n).map(f).collect::<Vec<_>>();
    let values: Vec<i64> = match fill {
        Fill::Constant(value) => each(&|_| *value as i64),
        Fill::Values(values) => {
            cycle(values, 0)?;
            each(&|i| values[i % values.len()] as i64)
        }
        Fill::Below(0) => return Err("below: 0 leaves no integer".into()),
        Fill::Below(end) => each(&|i| i64::from(word(i) % end)),
        Fill::Count(first) => each(&|i| i64::from(*first) + i as i64),
        Fill::Whole => each(&|i| if i == 0 { 0 } else { n as i64 - 1 }),
        Fill::Permutation => permutation(n, source, 0),
        Fill::Codes => each(&|i| i64::from(word(i) as u8 as i8)),
        Fill::Routes { experts, skew } => routes(decl, *experts, *skew, source)?,
        other => {
            return Err(format!(
                "{other:?} is for floats, the buffer holds {}",
                decl.dtype
            ));
        }
    };
    let outside = |v: i64| Err(format!("{v} does not fit into {}", decl.dtype));
    let mut bytes = Vec::with_capacity(decl.bytes());
    for v in values {
        // NONE is written as -1 in fixtures.
        match decl.dtype {
            DType::I8 => match i8::try_from(v) {
                Ok(v) => bytes.extend(v.to_le_bytes()),
                Err(_) => return outside(v),
            },
            DType::I32 => match i32::try_from(v) {
                Ok(v) => bytes.extend(v.to_le_bytes()),
                Err(_) => return outside(v),
            },
            _ if v == -1 => bytes.extend(layerlet_core::NONE.to_le_bytes()),
            _ => match u32::try_from(v) {
                Ok(v) => bytes.extend(v.to_le_bytes()),
                Err(_) => return outside(v),
            },
        }
    }
    Ok(bytes)
}

/// Fisher and Yates, downwards; draw `j` takes the word of element `first + j`.
fn permutation(n: usize, source: Source, first: usize) -> Vec<i64> {
    let mut values: Vec<i64> = (0..n as i64).collect();
    for j in (1..n).rev() {
        let other = source.words((first + j) as u64)[0] as usize % (j + 1);
        values.swap(j, other);
    }
    values
}

fn routes(decl: &BufferDecl, experts: u32, skew: Skew, source: Source) -> Result<Vec<i64>, String> {
    let &[tokens, k] = decl.shape.as_slice() else {
        return Err(format!(
            "routes: expected shape [T, k], found {:?}",
            decl.shape
        ));
    };
    if k > experts as usize {
        return Err(format!("routes: {k} of {experts} experts"));
    }
    let mut ids = Vec::with_capacity(tokens * k);
    for t in 0..tokens {
        let mut row = permutation(experts as usize, source, t * experts as usize);
        match skew {
            Skew::Uniform => {}
            Skew::Hot => {
                let at = row.iter().position(|e| *e == 0).unwrap_or(0);
                row.swap(0, at);
            }
            Skew::Few => row = (0..i64::from(experts)).rev().collect(),
        }
        ids.extend_from_slice(&row[..k]);
    }
    Ok(ids)
}
