//! What the tests of all operations share: buffers to run a launch over, random data, schedules.
#![allow(dead_code)] // each test crate uses its part

use layerlet_core::buffer::{Buf, BufferTable, Role};
use layerlet_core::dtype::Element;
use layerlet_core::launch::{Launch, LaunchError};
use layerlet_core::memory::{HostBuffer, HostElement, Memory};
use layerlet_core::numerics::{bf16, philox, round_bf16};
use std::ops::Range;

pub mod schedule;

/// Buffers to run launches over. Outputs start as poison.
#[derive(Default)]
pub struct Bench {
    pub table: BufferTable,
    buffers: Vec<HostBuffer>,
}

impl Bench {
    fn declare<E: HostElement>(&mut self, name: &str, shape: &[usize]) -> (Buf<E>, &mut Vec<E>) {
        let buf = self
            .table
            .declare(name, shape, Role::Scratch)
            .expect("a fresh name");
        let decl = self.table.get(buf.id()).expect("just declared");
        self.buffers.push(HostBuffer::zeroed(decl));
        let content = self.buffers.last_mut().expect("just pushed");
        (buf, E::view_mut(content).expect("the declared dtype"))
    }

    /// A buffer with content.
    pub fn input<E: HostElement>(&mut self, name: &str, shape: &[usize], values: Vec<E>) -> Buf<E> {
        let (buf, content) = self.declare(name, shape);
        assert_eq!(content.len(), values.len(), "{name} {shape:?}");
        *content = values;
        buf
    }

    /// A buffer that a launch will write.
    pub fn output<E: HostElement>(&mut self, name: &str, shape: &[usize]) -> Buf<E> {
        let (buf, content) = self.declare::<E>(name, shape);
        bytemuck::cast_slice_mut(content).fill(0xAAu8);
        buf
    }

    pub fn get<E: HostElement>(&self, buf: Buf<E>) -> &[E] {
        E::view(&self.buffers[buf.id().0 as usize]).expect("the declared dtype")
    }

    pub fn check(&self, op: impl Into<Launch>) -> Result<(), LaunchError> {
        op.into().check(&self.table)
    }

    /// Checks, then runs the reference. Whatever happens, every buffer keeps its size.
    pub fn run(&mut self, op: impl Into<Launch>) -> Result<(), LaunchError> {
        let launch = op.into();
        launch.check(&self.table)?;
        let sizes: Vec<usize> = self.buffers.iter().map(|b| b.bytes().len()).collect();
        let result = launch.run(&mut Memory::new(&self.table, &mut [], &mut self.buffers));
        let after: Vec<usize> = self.buffers.iter().map(|b| b.bytes().len()).collect();
        assert_eq!(after, sizes, "a buffer was taken and not put back");
        result
    }
}

/// The launch is refused with a message that holds every one of these fragments.
#[track_caller]
pub fn assert_refused(result: Result<(), LaunchError>, fragments: &[&str]) {
    let message = result.expect_err("must be refused").to_string();
    for fragment in fragments {
        assert!(message.contains(fragment), "{message:?} lacks {fragment:?}");
    }
}

/// Equality of bits; NaN payloads are not part of the contract.
#[track_caller]
pub fn assert_same_bits(found: &[bf16], expected: &[bf16], context: &str) {
    assert_eq!(found.len(), expected.len(), "{context}");
    for (i, (f, e)) in found.iter().zip(expected).enumerate() {
        let same = f.to_bits() == e.to_bits() || (f.is_nan() && e.is_nan());
        assert!(same, "{context}: element {i} is {f:?}, expected {e:?}");
    }
}

/// `found` lies within `tolerance` of `expected`, relative to the larger of 1 and the value.
#[track_caller]
pub fn assert_close(found: f32, expected: f64, tolerance: f64, context: &str) {
    let error = (f64::from(found) - expected).abs() / expected.abs().max(1.0);
    assert!(
        error <= tolerance,
        "{context}: {found} is not {expected} (error {error:e})"
    );
}

/// Random data from a seed, the same everywhere.
pub struct Random {
    seed: u64,
    counter: u32,
}

impl Random {
    pub fn new(seed: u64) -> Self {
        Random { seed, counter: 0 }
    }

    pub fn bits(&mut self) -> u32 {
        self.counter += 1;
        philox(
            [self.counter, 0, 0, 0],
            [self.seed as u32, (self.seed >> 32) as u32],
        )[0]
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.bits() as usize % n
    }

    /// Uniform in [-scale, scale).
    pub fn f32(&mut self, scale: f32) -> f32 {
        (self.bits() as i32 as f32 / 2_147_483_648.0) * scale
    }

    pub fn f32s(&mut self, n: usize, scale: f32) -> Vec<f32> {
        (0..n).map(|_| self.f32(scale)).collect()
    }

    pub fn bf16s(&mut self, n: usize, scale: f32) -> Vec<bf16> {
        (0..n).map(|_| round_bf16(self.f32(scale))).collect()
    }

    pub fn i8s(&mut self, n: usize) -> Vec<i8> {
        (0..n).map(|_| self.bits() as i8).collect()
    }

    /// The numbers `0..n` in random order.
    pub fn permutation(&mut self, n: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..n as u32).collect();
        for i in (1..n).rev() {
            order.swap(i, self.below(i + 1));
        }
        order
    }
}

pub fn b(x: f32) -> bf16 {
    round_bf16(x)
}

pub fn bs(values: &[f32]) -> Vec<bf16> {
    values.iter().map(|&x| b(x)).collect()
}

/// Sizes that tests of splits put together in turn.
pub fn ranges(sizes: &[usize]) -> Vec<Range<usize>> {
    let mut start = 0;
    sizes
        .iter()
        .map(|n| {
            start += n;
            start - n..start
        })
        .collect()
}

/// Elements as bytes, for comparisons of whole states.
pub fn bytes<E: Element>(values: &[E]) -> &[u8] {
    bytemuck::cast_slice(values)
}
