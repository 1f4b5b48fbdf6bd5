//! Sweeps of one-argument f32 functions over sets of inputs, compared with a reference.
//!
//! `LAYERLET_SLOW=1` turns every sweep into one over all 2^32 inputs; the quick form takes a stride
//! of 257 (2^24 inputs), the surroundings of every power of two and of the points that are critical
//! to the function, and one range without gaps.
#![allow(dead_code)]

pub mod variant;

use sha2::{Digest, Sha256};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Whether the exhaustive form of a sweep was asked for.
pub fn slow() -> bool {
    std::env::var_os("LAYERLET_SLOW").is_some_and(|v| v == "1")
}

/// All f32 bit patterns in the order of their values: -NaN, -inf, ..., -0, +0, ..., +inf, +NaN.
pub fn key_to_f32(key: u32) -> f32 {
    f32::from_bits(if key >> 31 == 1 {
        key ^ 0x8000_0000
    } else {
        !key
    })
}

/// The inverse of [`key_to_f32`].
pub fn f32_to_key(x: f32) -> u32 {
    let bits = x.to_bits();
    if bits >> 31 == 1 {
        !bits
    } else {
        bits ^ 0x8000_0000
    }
}

/// Keys `start`, `start + stride`, ... below 2^32, at most [`SPAN`] of them.
struct Span {
    start: u64,
    stride: u64,
    len: usize,
}

const SPAN: usize = 1 << 16;
const BLOCK: usize = 1 << 11;

fn push_spans(out: &mut Vec<Span>, from: u64, to: u64, stride: u64) {
    let mut start = from;
    while start < to {
        let len = ((to - start).div_ceil(stride) as usize).min(SPAN);
        out.push(Span { start, stride, len });
        start += len as u64 * stride;
    }
}

/// What one sweep runs over, and how its results are judged.
pub struct Sweep<'a> {
    /// The correctly rounded result (the zero of the right sign, NaN where NaN is due).
    pub rounded: &'a (dyn Fn(f32) -> f32 + Sync),
    /// The result in f64, for measuring errors where the rounded one is not met.
    pub exact: &'a (dyn Fn(f32) -> f64 + Sync),
    /// Results must not fall (1), must not rise (-1), or may do either (0).
    pub direction: i32,
    /// Below this input errors are measured absolutely.
    pub absolute_below: f32,
    /// Inputs whose surroundings the quick form covers densely.
    pub critical: Vec<f32>,
    /// A range that the quick form covers densely: where the polynomial counts most.
    pub dense: (f32, f32),
}

/// What a sweep found.
#[derive(Default)]
pub struct Report {
    pub points: u64,
    pub not_rounded: u64,
    pub max_ulp: f64,
    pub max_ulp_at: f32,
    pub max_absolute: f64,
    pub wrong: u64,
    pub wrong_at: f32,
    pub turns: u64,
    pub turn_at: f32,
    pub digest: String,
}

/// One unit in the last place of an f32 of this value (2^-149 for subnormals).
pub fn ulp(exact: f64) -> f64 {
    let exponent = ((exact.abs().to_bits() >> 52) as i32 - 1023).max(-126);
    f64::from_bits(((exponent - 23 + 1023) as u64) << 52)
}

impl Sweep<'_> {
    fn push_dense(&self, spans: &mut Vec<Span>) {
        let (from, to) = self.dense;
        push_spans(spans, f32_to_key(from).into(), f32_to_key(to).into(), 1);
    }

    fn spans(&self, exhaustive: bool) -> Vec<Span> {
        let mut spans = Vec::new();
        if exhaustive {
            push_spans(&mut spans, 0, 1 << 32, 1);
            return spans;
        }
        push_spans(&mut spans, 0, 1 << 32, 257);
        let (from, to) = self.dense;
        push_spans(
            &mut spans,
            f32_to_key(from).into(),
            f32_to_key(to).into(),
            1,
        );
        let mut around = |x: f32, reach: u64| {
            let key = u64::from(f32_to_key(x));
            push_spans(
                &mut spans,
                key.saturating_sub(reach),
                (key + reach).min(1 << 32),
                1,
            );
        };
        for exponent in 0..=255u32 {
            around(f32::from_bits(exponent << 23), 64);
            around(f32::from_bits(exponent << 23 | 0x8000_0000), 64);
        }
        for &x in &self.critical {
            around(x, 1024);
        }
        spans
    }

    /// Runs `f` over the inputs: all of them, or the quick choice.
    pub fn run(&self, exhaustive: bool, f: impl Fn(f32) -> f32 + Sync) -> Report {
        self.run_spans(&self.spans(exhaustive), true, f)
    }

    /// The digest over the dense range alone, which is part of the quick choice.
    pub fn dense_digest(&self, f: impl Fn(f32) -> f32 + Sync) -> String {
        let mut spans = Vec::new();
        self.push_dense(&mut spans);
        self.run_spans(&spans, false, f).digest
    }

    fn run_spans(&self, spans: &[Span], judging: bool, f: impl Fn(f32) -> f32 + Sync) -> Report {
        let digests = Mutex::new(vec![[0u8; 32]; spans.len()]);
        let total = Mutex::new(Report::default());
        let next = AtomicUsize::new(0);
        let workers = std::thread::available_parallelism().map_or(2, |n| n.get());
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    let mut report = Report::default();
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(span) = spans.get(index) else { break };
                        let digest = self.run_span(span, &f, judging, &mut report);
                        digests.lock().unwrap()[index] = digest;
                    }
                    total.lock().unwrap().merge(report);
                });
            }
        });
        let mut report = total.into_inner().unwrap();
        let all = Sha256::digest(digests.into_inner().unwrap().as_flattened());
        report.digest = all[..8].iter().map(|b| format!("{b:02x}")).collect();
        report
    }

    fn run_span(
        &self,
        span: &Span,
        f: &impl Fn(f32) -> f32,
        judging: bool,
        report: &mut Report,
    ) -> [u8; 32] {
        let mut hash = Sha256::new();
        let (mut xs, mut ys) = ([0.0f32; BLOCK], [0.0f32; BLOCK]);
        let mut bytes = [[0u8; 4]; BLOCK];
        // The neighbour below the span, so that no step is left out of the monotonicity check.
        let mut previous_x = key_to_f32(span.start.saturating_sub(1) as u32);
        let mut previous_y = f(previous_x);
        let mut done = 0;
        while done < span.len {
            let len = BLOCK.min(span.len - done);
            for (i, x) in xs[..len].iter_mut().enumerate() {
                *x = key_to_f32((span.start + (done + i) as u64 * span.stride) as u32);
            }
            for (y, x) in ys[..len].iter_mut().zip(&xs) {
                *y = f(*x);
            }
            for (b, y) in bytes[..len].iter_mut().zip(&ys) {
                // NaN payloads are not part of the contract.
                *b = if y.is_nan() {
                    [0xff; 4]
                } else {
                    y.to_le_bytes()
                };
            }
            hash.update(bytes[..len].as_flattened());
            done += len;
            if !judging {
                continue;
            }
            for (&x, &y) in xs[..len].iter().zip(&ys) {
                self.judge(x, y, report);
                let turn = match self.direction {
                    1 => y < previous_y,
                    -1 => y > previous_y,
                    _ => false,
                };
                if turn && previous_x < x {
                    report.turns += 1;
                    report.turn_at = x;
                }
                (previous_x, previous_y) = (x, y);
            }
        }
        report.points += span.len as u64;
        hash.finalize().into()
    }

    fn judge(&self, x: f32, y: f32, report: &mut Report) {
        let due = (self.rounded)(x);
        if y.to_bits() == due.to_bits() || (y.is_nan() && due.is_nan()) {
            return;
        }
        report.not_rounded += 1;
        let sign_differs = (y.to_bits() ^ due.to_bits()) >> 31 == 1;
        if !y.is_finite() || !due.is_finite() || sign_differs {
            report.wrong += 1;
            report.wrong_at = x;
            return;
        }
        let exact = (self.exact)(x);
        let error = (f64::from(y) - exact).abs();
        if x < self.absolute_below {
            report.max_absolute = report.max_absolute.max(error);
        } else if error / ulp(exact) > report.max_ulp {
            report.max_ulp = error / ulp(exact);
            report.max_ulp_at = x;
        }
    }
}

impl Report {
    fn merge(&mut self, other: Report) {
        self.points += other.points;
        self.not_rounded += other.not_rounded;
        self.max_absolute = self.max_absolute.max(other.max_absolute);
        if other.max_ulp > self.max_ulp {
            (self.max_ulp, self.max_ulp_at) = (other.max_ulp, other.max_ulp_at);
        }
        if other.wrong > 0 {
            self.wrong += other.wrong;
            self.wrong_at = other.wrong_at;
        }
        if other.turns > 0 {
            self.turns += other.turns;
            self.turn_at = other.turn_at;
        }
    }

    /// Whether the function keeps to its bound: errors of at most `max_ulp` last places, no wrong
    /// special value, no step against its direction.
    pub fn verdict(&self, max_ulp: f64) -> Result<(), String> {
        if self.wrong > 0 {
            let (n, x) = (self.wrong, self.wrong_at);
            return Err(format!("{n} wrong NaNs, infinities or signs, one at {x:e}"));
        }
        if self.turns > 0 {
            return Err(format!(
                "{} steps back, one at {:e}",
                self.turns, self.turn_at
            ));
        }
        if self.max_ulp > max_ulp {
            let (e, x) = (self.max_ulp, self.max_ulp_at);
            return Err(format!(
                "error of {e:.4} last places at {x:e}, the bound is {max_ulp}"
            ));
        }
        Ok(())
    }

    /// One line for people.
    pub fn line(&self, name: &str) -> String {
        let mut line = format!(
            "{name}: {} inputs, {} not correctly rounded, max error {:.5} ulp at {:e}",
            self.points, self.not_rounded, self.max_ulp, self.max_ulp_at
        );
        if self.max_absolute > 0.0 {
            line += &format!(", {:e} absolute in the tail", self.max_absolute);
        }
        line + &format!(", digest {}", self.digest)
    }
}

/// Numbers of `0..end` on which `differs` holds, and one of them: all of them, or every 251st.
pub fn count(exhaustive: bool, end: u64, differs: impl Fn(u32) -> bool + Sync) -> (u64, u32) {
    let stride = if exhaustive { 1 } else { 251 };
    let found = Mutex::new((0, 0));
    let next = AtomicU64::new(0);
    let piece = stride << 20;
    let workers = std::thread::available_parallelism().map_or(2, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let start = next.fetch_add(piece, Ordering::Relaxed);
                    if start >= end {
                        break;
                    }
                    let (mut n, mut at) = (0, 0);
                    for i in (start..end.min(start + piece)).step_by(stride as usize) {
                        if differs(i as u32) {
                            n += 1;
                            at = i as u32;
                        }
                    }
                    if n > 0 {
                        let mut found = found.lock().unwrap();
                        *found = (found.0 + n, at);
                    }
                }
            });
        }
    });
    found.into_inner().unwrap()
}
