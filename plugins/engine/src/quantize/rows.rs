//! One row: its scale and its codes.
//!
//! Invariants: scales are finite and above zero, codes lie in -127..=127; a row depends on no other.

const FLOOR: f32 = 1e-10;

/// The scale of a row, or the first value that has none.
pub fn scale(row: &[f32]) -> Result<f32, f32> {
    if let Some(value) = row.iter().find(|v| !v.is_finite()) {
        return Err(*value);
    }
    let absmax = row.iter().fold(0.0f32, |max, v| max.max(v.abs()));
    Ok(absmax.max(FLOOR) / 127.0)
}

/// The code of a value in a row of this scale.
pub fn code(value: f32, scale: f32) -> i8 {
    (value / scale).round_ties_even().clamp(-127.0, 127.0) as i8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_and_codes() {
        let check = |row: &[f32], expect: Result<f32, f32>, codes: &[i8]| {
            let found = scale(row);
            assert_eq!(
                found.map_err(f32::to_bits),
                expect.map_err(f32::to_bits),
                "{row:?}"
            );
            if let Ok(s) = found {
                let found: Vec<i8> = row.iter().map(|&v| code(v, s)).collect();
                assert_eq!(found, codes, "{row:?}");
            }
        };
        check(
            &[127.0, -127.0, 0.5, 1.5, -0.5],
            Ok(1.0),
            &[127, -127, 0, 2, 0],
        );
        check(&[0.0, -0.0], Ok(FLOOR / 127.0), &[0, 0]);
        check(&[1e-40, -1e-40], Ok(FLOOR / 127.0), &[0, 0]);
        check(&[1.0, f32::INFINITY], Err(f32::INFINITY), &[]);
        check(&[f32::NAN], Err(f32::NAN), &[]);
        check(&[3e38, 1e38], Ok(3e38 / 127.0), &[127, 42]);
    }
}
