//! Every level against the sum written out, and the step of a level that is missing here against a
//! model of its instructions.

use super::*;
use proptest::prelude::*;

fn codes_of<'b>(arena: &'b Bump, level: Level, rows: &[Vec<i8>]) -> Codes<'b> {
    let mut codes = Codes::room(arena, level, rows.len(), rows.first().map_or(0, Vec::len));
    for row in rows {
        codes.push(level, |out| out.copy_from_slice(row));
    }
    codes
}

fn naive(rows: &[Vec<i8>], weights: &[Vec<i8>]) -> Vec<i32> {
    let pairs = rows
        .iter()
        .flat_map(|row| weights.iter().map(move |w| (row, w)));
    let sum = |(row, w): (&Vec<i8>, &Vec<i8>)| {
        let products = row
            .iter()
            .zip(w)
            .map(|(&a, &w)| i32::from(a) * i32::from(w));
        products.sum()
    };
    pairs.map(sum).collect()
}

/// Collects what a walk hands out, each place exactly once.
fn collect(
    rows: usize,
    columns: usize,
    walk: impl FnOnce(&mut dyn FnMut(usize, usize, i32)),
) -> Vec<i32> {
    let mut found = vec![None; rows * columns];
    walk(&mut |row, column, sum| {
        let place = &mut found[row * columns + column];
        assert!(
            place.replace(sum).is_none(),
            "[{row}, {column}] was handed out twice"
        );
    });
    found
        .into_iter()
        .map(|sum| sum.expect("every place is handed out"))
        .collect()
}

/// The byte dot product of AVX-512 VNNI, as its maker describes it: no saturation, modulo 2^32.
#[derive(Clone, Copy)]
struct ModelOfVnni;

impl DotStep<64> for ModelOfVnni {
    type Code = i8;
    type Sums = [i32; 16];
    type Weight = [u8; 64];
    const BIAS: i32 = 128;

    fn zero() -> [i32; 16] {
        [0; 16]
    }

    fn prepare(weight: &[i8; 64]) -> [u8; 64] {
        weight.map(|w| (w as u8) ^ 0x80)
    }

    fn add(mut sums: [i32; 16], weight: [u8; 64], codes: &[i8; 64]) -> [i32; 16] {
        for (i, sum) in sums.iter_mut().enumerate() {
            for j in 4 * i..4 * i + 4 {
                *sum = sum.wrapping_add(i32::from(weight[j]) * i32::from(codes[j]));
            }
        }
        sums
    }

    fn codes<'a>(codes: &'a Codes<'_>) -> &'a [i8] {
        codes.codes
    }

    fn total(sums: [i32; 16]) -> i32 {
        sums.into_iter().fold(0, i32::wrapping_add)
    }
}

fn code() -> impl Strategy<Value = i8> {
    prop_oneof![4 => any::<i8>(), 1 => Just(i8::MIN), 1 => Just(127), 1 => Just(-127)]
}

fn matrix(
    rows: usize,
    width: usize,
    code: impl Strategy<Value = i8>,
) -> impl Strategy<Value = Vec<Vec<i8>>> {
    proptest::collection::vec(proptest::collection::vec(code, width), rows)
}

fn operands() -> impl Strategy<Value = (Vec<Vec<i8>>, Vec<Vec<i8>>)> {
    let width = prop_oneof![1..10usize, 28..36usize, 60..70usize, 120..140usize];
    (1..9usize, 0..10usize, width, any::<bool>()).prop_flat_map(|(m, n, k, whole)| {
        let rows = match whole {
            true => matrix(m, k, code()).boxed(),
            false => matrix(m, k, -127..=127i8).boxed(),
        };
        (rows, matrix(n, k, code()))
    })
}

proptest! {
    #[test]
    fn every_level_gives_the_exact_sum((rows, weights) in operands()) {
        let arena = Bump::new();
        let weight = weights.concat();
        let want = naive(&rows, &weights);
        for level in Level::available() {
            let codes = codes_of(&arena, level, &rows);
            let got = collect(rows.len(), weights.len(), |store| dot_codes(level, &codes, &weight, store));
            prop_assert_eq!(&got, &want, "{}", level.name());
        }
    }

    #[test]
    fn the_biased_form_is_exact((rows, weights) in operands()) {
        let arena = Bump::new();
        let (codes, weight) = (codes_of(&arena, Level::PORTABLE, &rows), weights.concat());
        let one = collect(rows.len(), weights.len(), |store| walk::<ModelOfVnni, 64, 1, 4>(&codes, &weight, store));
        let many = collect(rows.len(), weights.len(), |store| walk::<ModelOfVnni, 64, 6, 4>(&codes, &weight, store));
        let want = naive(&rows, &weights);
        prop_assert_eq!(&one, &want);
        prop_assert_eq!(&many, &want);
    }
}

/// The longest row that the contract allows, at the extremes: sums reach 2^31 - 1 before the bias goes.
#[test]
fn the_longest_row_does_not_overflow() {
    let k = 131_072;
    for (a, w) in [
        (127, 127),
        (-127, 127),
        (127, -127),
        (-128, 127),
        (-127, -128),
    ] {
        let (rows, weights) = (vec![vec![a; k]; 5], vec![vec![w; k]; 3]);
        let arena = Bump::new();
        let (weight, want) = (weights.concat(), naive(&rows, &weights));
        for level in Level::available() {
            let codes = codes_of(&arena, level, &rows);
            let got = collect(5, 3, |store| dot_codes(level, &codes, &weight, store));
            assert_eq!(got, want, "{} at {a} * {w}", level.name());
        }
        let codes = codes_of(&arena, Level::PORTABLE, &rows);
        let got = collect(5, 3, |store| {
            walk::<ModelOfVnni, 64, 6, 4>(&codes, &weight, store)
        });
        assert_eq!(got, want, "biased at {a} * {w}");
    }
}
