//! How fast the integer products of a layer are, one line for each shape:
//!
//! ```sh
//! cargo run --release -p layerlet-cpu --example gemm_rates -- 64x1024x2048 1x4096x2048
//! ```
//!
//! One thread, the whole operation (epilogue and rounding included), the median of nine. What oneDNN
//! makes of the same shapes: `peers/onednn_gemm.cpp`.

use layerlet_core::backend::{Backend, BackendError, Place};
use layerlet_core::buffer::{BufferTable, Role};
use layerlet_core::numerics::bf16;
use layerlet_core::ops::LinearW8A8;
use layerlet_core::plan::Plan;
use layerlet_cpu::{Cpu, Level};
use std::time::Instant;

/// Codes without -128, which no quantisation makes.
fn codes(count: usize, factor: u32) -> Vec<u8> {
    let code = |i: u32| (i.wrapping_mul(factor) >> 8) as i8 % 127;
    (0..count as u32).map(|i| code(i) as u8).collect()
}

fn measure(level: Level, [m, n, k]: [usize; 3]) -> Result<f64, BackendError> {
    let mut buffers = BufferTable::default();
    let weight = buffers.declare("weight", &[n, k], Role::Weight)?;
    let weight_scale = buffers.declare("weight_scale", &[n], Role::Weight)?;
    let model = buffers.clone();
    let operands = LinearW8A8 {
        weight,
        weight_scale,
        codes: buffers.declare("codes", &[m, k], Role::Step)?,
        scale: buffers.declare("scale", &[m], Role::Step)?,
        out: buffers.declare::<bf16>("out", &[m, n], Role::Output)?,
    };
    let input = operands.codes.id();
    let plan = Plan {
        model_buffers: model.len(),
        buffers,
        launches: vec![operands.into()],
    };
    let cpu = Cpu::with_threads(1).at_level(level);
    let mut instance = cpu.open(&model)?;
    let id = instance.prepare(&plan)?;
    instance.write(Place::Model(weight.id()), 0, &codes(n * k, 2_654_435_761))?;
    instance.write(Place::Plan(id, input), 0, &codes(m * k, 40_503))?;
    let repeats = (500_000_000 / (m * n * k)).max(3);
    let mut times = Vec::new();
    for _ in 0..10 {
        let start = Instant::now();
        for _ in 0..repeats {
            instance.run(id, usize::MAX)?;
        }
        times.push(start.elapsed().as_secs_f64() / repeats as f64);
    }
    // The first one warmed up.
    times.remove(0);
    times.sort_by(f64::total_cmp);
    Ok(2.0 * (m * n * k) as f64 / times[4] / 1e9)
}

fn shape(text: &str) -> Option<[usize; 3]> {
    let sizes: Option<Vec<usize>> = text.split('x').map(|n| n.parse().ok()).collect();
    sizes?
        .try_into()
        .ok()
        .filter(|sizes: &[usize; 3]| !sizes.contains(&0))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let level = Level::from_environment()?;
    for text in std::env::args().skip(1) {
        let shape = shape(&text).ok_or_else(|| format!("{text}: expected ROWSxCOLUMNSxDEPTH"))?;
        println!(
            "{text} {:.1} GOP/s {}",
            measure(level, shape)?,
            level.name()
        );
    }
    Ok(())
}
