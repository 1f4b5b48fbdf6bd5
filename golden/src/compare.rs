//! Two runs, byte for byte, and what to say where they differ.

use crate::run::Written;
use layerlet_core::dtype::DType;
use serde::Serialize;
use std::fmt;

/// An element as a report shows it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Value {
    /// Bits, zero-extended.
    pub bits: u32,
    /// The number.
    pub value: f64,
    #[serde(skip)]
    dtype: DType,
}

impl Value {
    /// Reads element `i`.
    pub fn read(dtype: DType, bytes: &[u8], i: usize) -> Value {
        let size = dtype.size();
        let mut word = [0u8; 4];
        word[..size].copy_from_slice(&bytes[i * size..(i + 1) * size]);
        let bits = u32::from_le_bytes(word);
        let value = match dtype {
            DType::Bf16 => f64::from(f32::from_bits(bits << 16)),
            DType::F32 => f64::from(f32::from_bits(bits)),
            DType::I8 => f64::from(bits as u8 as i8),
            DType::I32 => f64::from(bits as i32),
            DType::U32 => f64::from(bits),
        };
        Value { bits, value, dtype }
    }

    /// Equal by the contract: the same bits, or any two NaNs.
    pub fn same(self, other: Value) -> bool {
        self.bits == other.bits || (self.value.is_nan() && other.value.is_nan())
    }

    /// Steps between two floats of one dtype; none where a NaN or an integer is involved.
    pub fn ulps(self, other: Value) -> Option<u64> {
        let sign = match self.dtype {
            DType::Bf16 => 0x8000,
            DType::F32 => 0x8000_0000u32,
            DType::I8 | DType::I32 | DType::U32 => return None,
        };
        if self.value.is_nan() || other.value.is_nan() {
            return None;
        }
        let ordered = |bits: u32| match bits & sign {
            0 => i64::from(bits),
            _ => -i64::from(bits & (sign - 1)),
        };
        Some(ordered(self.bits).abs_diff(ordered(other.bits)))
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = 2 * self.dtype.size();
        let (bits, value) = (self.bits, self.value);
        match self.dtype {
            DType::Bf16 | DType::F32 => write!(f, "0x{bits:0width$x} ({:e})", value as f32),
            _ => write!(f, "0x{bits:0width$x} ({value})"),
        }
    }
}

/// Where a buffer differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Which buffer.
    pub buffer: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Differing elements.
    pub count: usize,
    /// All elements.
    pub elements: usize,
    /// Index of the first one in each dimension.
    pub first: Vec<usize>,
    /// What it should be.
    pub expected: Value,
    /// What it is.
    pub found: Value,
    /// Steps between the two, for floats.
    pub ulps: Option<u64>,
    /// The most steps between any two.
    pub max_ulps: Option<u64>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference {
            buffer,
            shape,
            count,
            elements,
            first,
            expected,
            found,
            ..
        } = self;
        write!(
            f,
            "{buffer} {shape:?}: {count} of {elements} differ, first at {first:?}: \
             expected {expected}, found {found}"
        )?;
        match (self.ulps, self.max_ulps) {
            (Some(ulps), Some(most)) => write!(f, ", {ulps} ulp (at most {most})"),
            _ => Ok(()),
        }
    }
}

/// The first buffer that differs, in order of writing. A run that keeps no intermediates shows fewer
/// buffers than the one that defines them; what it shows is compared.
pub fn compare(expected: &[Written], found: &[Written]) -> Option<Difference> {
    expected.iter().find_map(|e| {
        let f = found.iter().find(|f| f.decl.name == e.decl.name)?;
        compare_buffer(e, f)
    })
}

/// All differences of one buffer.
pub fn compare_buffer(expected: &Written, found: &Written) -> Option<Difference> {
    if expected.bytes == found.bytes {
        return None;
    }
    let (dtype, shape) = (expected.decl.dtype, &expected.decl.shape);
    let elements = expected.decl.elements();
    let at = |i| {
        (
            Value::read(dtype, &expected.bytes, i),
            Value::read(dtype, &found.bytes, i),
        )
    };
    let differing: Vec<usize> = (0..elements).filter(|&i| !at(i).0.same(at(i).1)).collect();
    let first = *differing.first()?;
    let (e, f) = at(first);
    Some(Difference {
        buffer: expected.decl.name.clone(),
        shape: shape.clone(),
        count: differing.len(),
        elements,
        first: unravel(first, shape),
        expected: e,
        found: f,
        ulps: e.ulps(f),
        max_ulps: differing
            .iter()
            .filter_map(|&i| at(i).0.ulps(at(i).1))
            .max(),
    })
}

/// Flat index to one index for each dimension.
pub fn unravel(mut flat: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (i, &extent) in index.iter_mut().zip(shape).rev() {
        *i = flat % extent;
        flat /= extent;
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;
    use layerlet_core::buffer::{BufferDecl, Role};

    fn written(dtype: DType, shape: &[usize], words: &[u32]) -> Written {
        let decl = BufferDecl {
            name: "out".into(),
            dtype,
            shape: shape.to_vec(),
            role: Role::Output,
        };
        let bytes = words
            .iter()
            .flat_map(|w| w.to_le_bytes()[..dtype.size()].to_vec())
            .collect();
        Written { decl, bytes }
    }

    #[test]
    fn nans_are_equal_and_differ_from_every_number() {
        for (dtype, nans, infinity) in [
            (DType::F32, [0x7fc0_0000, 0xff80_0001], 0x7f80_0000),
            (DType::Bf16, [0x7fc0, 0xff81], 0x7f80),
        ] {
            let nan = written(dtype, &[1], &nans[..1]);
            let other = written(dtype, &[1], &nans[1..]);
            assert_eq!(compare_buffer(&nan, &other), None, "{dtype}");
            for number in [0, infinity] {
                let number = written(dtype, &[1], &[number]);
                for (expected, found) in [(&nan, &number), (&number, &nan)] {
                    let difference = compare_buffer(expected, found).expect("a mismatch");
                    assert_eq!((difference.count, difference.ulps), (1, None), "{dtype}");
                }
            }
        }
    }

    #[test]
    fn zeros_of_both_signs_differ() {
        let plus = written(DType::Bf16, &[1], &[0]);
        let minus = written(DType::Bf16, &[1], &[0x8000]);
        let difference = compare_buffer(&plus, &minus).expect("a mismatch");
        assert_eq!((difference.count, difference.ulps), (1, Some(0)));
    }

    #[test]
    fn a_difference_says_where_how_many_and_how_far() {
        let expected = written(DType::F32, &[2, 3], &[0, 0, 0x3f80_0000, 0, 0x8000_0001, 7]);
        let found = written(DType::F32, &[2, 3], &[0, 0, 0x3f80_0000, 0, 0x0000_0002, 6]);
        let difference = compare_buffer(&expected, &found).expect("a mismatch");
        assert_eq!(
            difference.to_string(),
            "out [2, 3]: 2 of 6 differ, first at [1, 1]: expected 0x80000001 (-1e-45), \
             found 0x00000002 (3e-45), 3 ulp (at most 3)"
        );
    }
}
