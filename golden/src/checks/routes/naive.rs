//! The routed experts without groups: token by token, pair by pair, straight from the ids. Nothing here
//! sorts, so nothing here can sort wrongly.

use super::plan::{HIDDEN, INNER};
use super::route::Route;
use crate::case::Case;
use crate::run::Written;
use layerlet_core::numerics::{bf16, lane_dot_bf16, round_bf16, silu};
use layerlet_core::ops::quantize_row;

/// The output of a `routed_moe` case of this route.
pub fn routed_moe(case: &Case, route: &Route) -> Option<Written> {
    let weights = Weights::of(case)?;
    let x: Vec<bf16> = bytemuck::pod_collect_to_vec(input(case, "x")?);
    let mut out: Vec<bf16> = Vec::with_capacity(x.len());
    for (t, x) in x.chunks_exact(HIDDEN).enumerate() {
        let mut sum = [0.0f32; HIDDEN];
        let pairs = route.topk_ids[t].iter().zip(&route.topk_weights[t]);
        for (id, weight) in pairs {
            let Ok(expert) = usize::try_from(*id) else {
                continue;
            };
            let y = weights.expert(expert, x);
            for (sum, y) in sum.iter_mut().zip(y) {
                *sum += weight * y.to_f32();
            }
        }
        out.extend(sum.map(round_bf16));
    }
    let id = case.plan.buffers.find("out").ok()?;
    Some(Written {
        decl: case.decl(id).clone(),
        bytes: bytemuck::cast_slice(&out).to_vec(),
    })
}

fn input<'a>(case: &'a Case, name: &str) -> Option<&'a [u8]> {
    let id = case.plan.buffers.find(name).ok()?;
    let found = case.inputs.iter().find(|(input, _)| *input == id)?;
    Some(&found.1)
}

enum Weights {
    Bf16 { up: Vec<bf16>, down: Vec<bf16> },
    W8A8 { up: Codes, down: Codes },
}

struct Codes {
    codes: Vec<i8>,
    scale: Vec<f32>,
}

impl Codes {
    fn of(case: &Case, name: &str) -> Option<Codes> {
        Some(Codes {
            codes: bytemuck::pod_collect_to_vec(input(case, name)?),
            scale: bytemuck::pod_collect_to_vec(input(case, &format!("{name}_scale"))?),
        })
    }
}

impl Weights {
    fn of(case: &Case) -> Option<Weights> {
        if let (Some(up), Some(down)) = (Codes::of(case, "up"), Codes::of(case, "down")) {
            return Some(Weights::W8A8 { up, down });
        }
        Some(Weights::Bf16 {
            up: bytemuck::pod_collect_to_vec(input(case, "up")?),
            down: bytemuck::pod_collect_to_vec(input(case, "down")?),
        })
    }

    /// One expert on one hidden state.
    fn expert(&self, expert: usize, x: &[bf16]) -> Vec<bf16> {
        let gate_up = self.linear(true, expert, 2 * INNER, x);
        let (gate, up) = gate_up.split_at(INNER);
        let act: Vec<bf16> = gate
            .iter()
            .zip(up)
            .map(|(gate, up)| {
                let gate = round_bf16(silu(gate.to_f32()));
                round_bf16(gate.to_f32() * up.to_f32())
            })
            .collect();
        self.linear(false, expert, HIDDEN, &act)
    }

    fn linear(&self, first: bool, expert: usize, n: usize, x: &[bf16]) -> Vec<bf16> {
        let rows = expert * n..(expert + 1) * n;
        match self {
            Weights::Bf16 { up, down } => {
                let weight = if first { up } else { down };
                let row = |j: usize| &weight[j * x.len()..][..x.len()];
                rows.map(|j| round_bf16(lane_dot_bf16(x, row(j)))).collect()
            }
            Weights::W8A8 { up, down } => {
                let Codes { codes, scale } = if first { up } else { down };
                let mut x_codes = vec![0; x.len()];
                let x_scale = quantize_row(x, &mut x_codes);
                let product = |j: usize| -> i32 {
                    let row = &codes[j * x.len()..][..x.len()];
                    let pairs = row.iter().zip(&x_codes);
                    pairs.map(|(w, x)| i32::from(*w) * i32::from(*x)).sum()
                };
                rows.map(|j| round_bf16(product(j) as f32 * x_scale * scale[j]))
                    .collect()
            }
        }
    }
}
