//! The vector forms of [`super::DotStep`].
//!
//! `unsafe` for two reasons: intrinsics ask for a processor that has them, which a [`Level`] of the
//! kind proves, and loads read through pointers to arrays of exactly the loaded size.

#![allow(unsafe_code)]

use super::{Codes, DotStep, walk};
use crate::level::{Kind, Level};
use std::arch::x86_64::*;

/// 32 codes, widened, with instructions of AVX2. Never used outside of functions compiled for it.
///
/// Multiplying bytes (`vpmaddubsw` with the sign moved over) needs the multiplier as often and two more
/// instructions beside it.
#[derive(Clone, Copy)]
struct Avx2;

impl DotStep<32> for Avx2 {
    type Code = i16;
    type Sums = __m256i;
    type Weight = [__m256i; 2];
    const BIAS: i32 = 0;

    #[inline(always)]
    fn zero() -> __m256i {
        // SAFETY: only instantiated within `dot_codes_avx2`.
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    fn prepare(weight: &[i8; 32]) -> [__m256i; 2] {
        let (halves, _) = weight.as_chunks::<16>();
        // SAFETY: as `zero`; each half has the 16 bytes that are loaded.
        let widen = |half: &[i8; 16]| unsafe {
            _mm256_cvtepi8_epi16(_mm_loadu_si128(half.as_ptr().cast()))
        };
        [widen(&halves[0]), widen(&halves[1])]
    }

    #[inline(always)]
    fn add(mut sums: __m256i, weight: [__m256i; 2], codes: &[i16; 32]) -> __m256i {
        let (halves, _) = codes.as_chunks::<16>();
        for (weight, half) in weight.into_iter().zip(halves) {
            // SAFETY: as `zero`; the half has the 32 bytes that are loaded.
            sums = unsafe {
                let codes = _mm256_loadu_si256(half.as_ptr().cast());
                _mm256_add_epi32(sums, _mm256_madd_epi16(weight, codes))
            };
        }
        sums
    }

    #[inline(always)]
    fn codes<'a>(codes: &'a Codes<'_>) -> &'a [i16] {
        codes.wide
    }

    #[inline(always)]
    fn total(sums: __m256i) -> i32 {
        Self::totals([sums; 4])[0]
    }

    #[inline(always)]
    fn totals([a, b, c, d]: [__m256i; 4]) -> [i32; 4] {
        // SAFETY: as `zero`; the array has the 16 bytes that are stored.
        unsafe {
            let quads = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
            let upper = _mm256_extracti128_si256::<1>(quads);
            let sums = _mm_add_epi32(_mm256_castsi256_si128(quads), upper);
            let mut totals = [0; 4];
            _mm_storeu_si128(totals.as_mut_ptr().cast(), sums);
            totals
        }
    }
}

/// 64 codes with the byte dot product of AVX-512 VNNI. Never used outside of functions compiled for it.
#[derive(Clone, Copy)]
struct Vnni;

impl DotStep<64> for Vnni {
    type Code = i8;
    type Sums = __m512i;
    type Weight = __m512i;
    const BIAS: i32 = 128;

    #[inline(always)]
    fn zero() -> __m512i {
        // SAFETY: only instantiated within `dot_codes_vnni`.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    fn prepare(weight: &[i8; 64]) -> __m512i {
        // SAFETY: as `zero`; the array has the 64 bytes that are loaded.
        unsafe {
            let weight = _mm512_loadu_si512(weight.as_ptr().cast());
            _mm512_xor_si512(weight, _mm512_set1_epi8(i8::MIN))
        }
    }

    #[inline(always)]
    fn add(sums: __m512i, weight: __m512i, codes: &[i8; 64]) -> __m512i {
        // SAFETY: as `prepare`.
        unsafe { _mm512_dpbusd_epi32(sums, weight, _mm512_loadu_si512(codes.as_ptr().cast())) }
    }

    #[inline(always)]
    fn codes<'a>(codes: &'a Codes<'_>) -> &'a [i8] {
        codes.codes
    }

    #[inline(always)]
    fn total(sums: __m512i) -> i32 {
        // SAFETY: as `zero`.
        unsafe { _mm512_reduce_add_epi32(sums) }
    }

    #[inline(always)]
    fn totals(sums: [__m512i; 4]) -> [i32; 4] {
        // SAFETY: as `zero`; a level with AVX-512 has AVX2.
        let halves = sums.map(|sums| unsafe {
            let lower = _mm512_castsi512_si256(sums);
            _mm256_add_epi32(lower, _mm512_extracti64x4_epi64::<1>(sums))
        });
        Avx2::totals(halves)
    }
}

/// At the avx2 level.
pub fn dot_codes_avx2(
    level: Level,
    codes: &Codes<'_>,
    weight: &[i8],
    store: impl FnMut(usize, usize, i32),
) {
    #[target_feature(enable = "avx2,fma,bmi2")]
    fn one_row(codes: &Codes<'_>, weight: &[i8], store: impl FnMut(usize, usize, i32)) {
        walk::<Avx2, 32, 1, 4>(codes, weight, store);
    }

    #[target_feature(enable = "avx2,fma,bmi2")]
    fn rows(codes: &Codes<'_>, weight: &[i8], store: impl FnMut(usize, usize, i32)) {
        walk::<Avx2, 32, 4, 2>(codes, weight, store);
    }

    assert!(level.0 >= Kind::Avx2 && codes.wide.len() == codes.codes.len());
    match codes.rows() {
        // SAFETY: a level from avx2 on exists only where the processor has these instructions.
        1 => unsafe { one_row(codes, weight, store) },
        // SAFETY: as above.
        _ => unsafe { rows(codes, weight, store) },
    }
}

/// At the avx512-vnni level.
pub fn dot_codes_vnni(
    level: Level,
    codes: &Codes<'_>,
    weight: &[i8],
    store: impl FnMut(usize, usize, i32),
) {
    #[target_feature(enable = "avx2,fma,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn one_row(codes: &Codes<'_>, weight: &[i8], store: impl FnMut(usize, usize, i32)) {
        walk::<Vnni, 64, 1, 4>(codes, weight, store);
    }

    #[target_feature(enable = "avx2,fma,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn rows(codes: &Codes<'_>, weight: &[i8], store: impl FnMut(usize, usize, i32)) {
        walk::<Vnni, 64, 6, 4>(codes, weight, store);
    }

    assert!(level.0 >= Kind::Avx512Vnni);
    match codes.rows() {
        // SAFETY: a level of this kind exists only where the processor has these instructions.
        1 => unsafe { one_row(codes, weight, store) },
        // SAFETY: as above.
        _ => unsafe { rows(codes, weight, store) },
    }
}
