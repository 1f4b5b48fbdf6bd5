//! Whether a device computes as the contract says, asked before it computes anything else.
//!
//! Names promise nothing: one driver flushes subnormals, another fuses what must round twice, a third takes a module and
//! runs nothing. The test runs a kernel whose results the host knows, and names the first that differs.

use crate::device::Gpu;
use crate::memory::Arenas;
use layerlet_core::backend::BackendError;
use layerlet_core::numerics::{exp, philox, rsqrt, tree_sum};
use layerlet_kernels::module::Kernel;
use thiserror::Error;

/// What a device got wrong.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum Failure {
    #[error(transparent)]
    Device(#[from] BackendError),
    #[error(
        "fails the self-test: {what} of {a:?}, {b:?}, {c:?} (bits {:#010x}, {:#010x}, {:#010x}) gives {found:#010x}, \
         expected {expected:#010x}",
        a.to_bits(), b.to_bits(), c.to_bits()
    )]
    Wrong {
        what: &'static str,
        a: f32,
        b: f32,
        c: f32,
        found: u32,
        expected: u32,
    },
}

/// Results of a case, as the kernel stores them.
const RESULTS: [&str; 8] = [
    "a * b + c in two roundings",
    "the rounding error of a + c",
    "the product a * b, subnormals kept,",
    "the quotient a / b",
    "exp(a)",
    "1 / sqrt(b)",
    "the dot product of four s8 pairs in a and b",
    "the sum over 32 invocations after a barrier",
];

/// Cases: a whole number of workgroups, so that each half of one has 32 lanes.
const CASES: usize = 4096;

/// Passes, or says what the device gets wrong.
pub fn pass(gpu: &Gpu) -> Result<(), Failure> {
    let inputs = inputs();
    let expected = expected(&inputs);
    let found = run(gpu, &inputs)?;
    for (n, (&found, &expected)) in found.iter().zip(&expected).enumerate() {
        let (case, what) = (n / RESULTS.len(), n % RESULTS.len());
        let nans = f32::from_bits(found).is_nan() && f32::from_bits(expected).is_nan();
        if found != expected && !(nans && what != 6) {
            return Err(Failure::Wrong {
                what: RESULTS[what],
                a: inputs[0][case],
                b: inputs[1][case],
                c: inputs[2][case],
                found,
                expected,
            });
        }
    }
    Ok(())
}

/// A quarter of any bits, of ordinary numbers, of sums that cancel, of products that are subnormal.
fn inputs() -> [Vec<f32>; 3] {
    let mut inputs = [const { Vec::new() }; 3];
    let ordinary = |word: u32| (word >> 8) as f32 / 4_194_304.0 - 2.0;
    for n in 0..CASES as u32 {
        let [a, b, c, _] = philox([n, 0, 0, 0], [0x5e1f, 0x7e57]);
        let case = match n % 4 {
            0 => [a, b, c].map(f32::from_bits),
            1 => [a, b, c].map(ordinary),
            2 => {
                let (x, y) = (ordinary(a), ordinary(b));
                let near = (-(x * y)).to_bits().wrapping_add(c % 3).wrapping_sub(1);
                [x, y, f32::from_bits(near)]
            }
            _ => {
                let with_exponent = |word: u32, from: u32, count: u32| {
                    f32::from_bits((word & 0x807f_ffff) | ((from + word % count) << 23))
                };
                [
                    with_exponent(a, 0, 70),
                    with_exponent(b, 60, 70),
                    with_exponent(c, 0, 4),
                ]
            }
        };
        for (input, value) in inputs.iter_mut().zip(case) {
            input.push(value);
        }
    }
    inputs
}

fn expected([a, b, c]: &[Vec<f32>; 3]) -> Vec<u32> {
    let dot = |x: f32, y: f32| -> i32 {
        let pairs = x
            .to_bits()
            .to_le_bytes()
            .into_iter()
            .zip(y.to_bits().to_le_bytes());
        pairs
            .map(|(x, y)| i32::from(x as i8) * i32::from(y as i8))
            .sum()
    };
    let case = |n: usize| {
        let (x, y, z) = (a[n], b[n], c[n]);
        let sum = x + z;
        let back = sum - x;
        let lanes: [f32; 32] = std::array::from_fn(|lane| c[n / 32 * 32 + lane]);
        [
            (x * y + z).to_bits(),
            ((x - (sum - back)) + (z - back)).to_bits(),
            (x * y).to_bits(),
            (x / y).to_bits(),
            exp(x).to_bits(),
            rsqrt(y).to_bits(),
            dot(x, y) as u32,
            tree_sum(lanes).to_bits(),
        ]
    };
    (0..CASES).flat_map(case).collect()
}

fn run(gpu: &Gpu, inputs: &[Vec<f32>; 3]) -> Result<Vec<u32>, BackendError> {
    let results = RESULTS.len() * CASES;
    let sizes = inputs.iter().map(Vec::len).chain([results]);
    let sizes = sizes.map(|n| 4 * n as u64);
    let (memory, places) = Arenas::new(gpu, sizes, wgpu::BufferUsages::STORAGE)?;
    let (uniforms, uniform) = Arenas::new(gpu, [16], wgpu::BufferUsages::UNIFORM)?;
    for (input, &place) in inputs.iter().zip(&places) {
        memory.write(gpu, place, 0, bytemuck::cast_slice(input))?;
    }
    uniforms.write(
        gpu,
        uniform[0],
        0,
        bytemuck::cast_slice(&[CASES as u32, 0, 0, 0]),
    )?;
    let pipeline = gpu
        .pipelines
        .get(gpu, &Kernel::new("self_test"), &vec![false; 4])?;
    let mut resources: Vec<_> = places.iter().map(|&place| memory.binding(place)).collect();
    resources.push(uniforms.binding(uniform[0]));
    let entries = resources.into_iter().zip(0u32..);
    let entries: Vec<wgpu::BindGroupEntry<'_>> = entries
        .map(|(resource, binding)| wgpu::BindGroupEntry { binding, resource })
        .collect();
    gpu.guarded(|| {
        let bindings = gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("self test"),
            layout: &pipeline.layout,
            entries: &entries,
        });
        let mut encoder = gpu.device.create_command_encoder(&Default::default());
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(&pipeline.compute);
        pass.set_bind_group(0, &bindings, &[]);
        pass.dispatch_workgroups(CASES.div_ceil(64) as u32, 1, 1);
        drop(pass);
        gpu.queue.submit([encoder.finish()]);
    })?;
    let mut found = vec![0u32; results];
    memory.read(gpu, places[3], 0, bytemuck::cast_slice_mut(&mut found))?;
    Ok(found)
}
