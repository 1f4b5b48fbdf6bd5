//! Mutants of fused kernels: one stage inside is not what its operation says.

use super::{Mutant, misread};
use layerlet_core::launch::{Fused, Launch, LaunchError, Operation};
use layerlet_core::memory::Memory;
use layerlet_core::numerics::{bf16, round_bf16, silu};
use layerlet_core::ops::SiluMul;

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        op: "quantize_linear",
        fault: "quantises once for all rows",
        kernel: |launch, m, fault| {
            stages(launch, m, |stage, m| match stage {
                Launch::LinearW8A8(op) => {
                    misread(op, m, op.scale, fault, |scales| scales.fill(scales[0]))
                }
                other => other.run(m),
            })
        },
    },
    Mutant {
        op: "quantize_linear",
        fault: "leaves the last linear out",
        kernel: |launch, m, fault| {
            let Launch::Fused(fused) = launch else {
                return launch.run(m);
            };
            let count = fused.stages.len() - usize::from(fault);
            fused.stages[..count]
                .iter()
                .try_for_each(|stage| stage.run(m))
        },
    },
    Mutant {
        op: "quantize_linear",
        fault: "multiplies before the codes are there",
        kernel: |launch, m, fault| {
            let Launch::Fused(fused) = launch else {
                return launch.run(m);
            };
            let mut order: Vec<&Launch> = fused.stages.iter().collect();
            order.rotate_left(usize::from(fault));
            order.into_iter().try_for_each(|stage| stage.run(m))
        },
    },
    Mutant {
        op: "routed_moe",
        fault: "does not round between silu and product",
        kernel: |launch, m, fault| {
            stages(launch, m, |stage, m| match stage {
                Launch::SiluMul(op) => silu_mul(op, m, fault),
                other => other.run(m),
            })
        },
    },
    Mutant {
        op: "routed_moe",
        fault: "gathers by the map instead of its inverse",
        kernel: |launch, m, fault| {
            let mut map = None;
            stages(launch, m, |stage, m| match stage {
                Launch::ExpertPrologue(op) => {
                    map = Some(op.slot_of_row);
                    op.run(m)
                }
                Launch::WeightedGather(op) => {
                    let map = map.map(|map| m.get(map).to_vec()).unwrap_or_default();
                    misread(op, m, op.row_of_slot, fault, |rows| {
                        rows.copy_from_slice(&map)
                    })
                }
                other => other.run(m),
            })
        },
    },
    Mutant {
        op: "moe_layer",
        fault: "leaves the shared expert's gate out",
        kernel: |launch, m, fault| {
            stages(launch, m, |stage, m| match stage {
                Launch::SharedExpert(op) => {
                    misread(op, m, op.gate, fault, |gate: &mut [bf16]| {
                        gate.fill(bf16::from_f32(80.0));
                    })
                }
                other => other.run(m),
            })
        },
    },
    Mutant {
        op: "moe_layer",
        fault: "weights every expert the same",
        kernel: |launch, m, fault| {
            stages(launch, m, |stage, m| match stage {
                Launch::WeightedGather(op) => {
                    misread(op, m, op.weights, fault, |weights| weights.fill(weights[0]))
                }
                other => other.run(m),
            })
        },
    },
    Mutant {
        op: "gdn_layer",
        fault: "hands the convolution's state to another slot",
        kernel: |launch, m, fault| {
            stages(launch, m, |stage, m| match stage {
                Launch::CausalConv1d(op) => {
                    misread(op, m, op.state_read, fault, |slots| slots.rotate_right(1))
                }
                other => other.run(m),
            })
        },
    },
    Mutant {
        op: "gdn_layer",
        fault: "skips the gated norm's weight",
        kernel: |launch, m, fault| {
            stages(launch, m, |stage, m| match stage {
                Launch::GatedRmsNorm(op) => {
                    misread(op, m, op.weight, fault, |weight| weight.fill(1.0))
                }
                other => other.run(m),
            })
        },
    },
    Mutant {
        op: "gdn_layer",
        fault: "leaves the convolution's state as it was",
        kernel: |launch, m, fault| {
            stages(launch, m, |stage, m| match stage {
                Launch::CausalConv1d(op) => {
                    let before = m.get(op.state).to_vec();
                    op.run(m)?;
                    if fault {
                        m.get_mut(op.state).copy_from_slice(&before);
                    }
                    Ok(())
                }
                other => other.run(m),
            })
        },
    },
    Mutant {
        op: "attention_layer",
        fault: "attends before it appends",
        kernel: |launch, m, fault| {
            let Launch::Fused(fused) = launch else {
                return launch.run(m);
            };
            let mut order: Vec<&Launch> = fused.stages.iter().collect();
            let n = order.len();
            if fault {
                order.swap(n - 1, n - 2);
            }
            order.into_iter().try_for_each(|stage| stage.run(m))
        },
    },
    Mutant {
        op: "attention_layer",
        fault: "caches keys before their rotation",
        kernel: |launch, m, fault| {
            let mut normed = Vec::new();
            stages(launch, m, |stage, m| match stage {
                Launch::Rope(op) => {
                    normed = m.get(op.x).to_vec();
                    op.run(m)
                }
                Launch::KvAppend(op) => misread(op, m, op.k, fault, |k: &mut [bf16]| {
                    k.copy_from_slice(&normed)
                }),
                other => other.run(m),
            })
        },
    },
    Mutant {
        op: "lm_head_argmax",
        fault: "takes the last of equal tokens",
        kernel: |launch, m, fault| {
            stages(launch, m, |stage, m| match stage {
                Launch::Argmax(op) => {
                    let [_, vocab] = m.dims(op.logits);
                    misread(op, m, op.logits, fault, |logits: &mut [bf16]| {
                        logits.chunks_exact_mut(vocab).for_each(<[bf16]>::reverse);
                    })?;
                    let last = vocab as u32 - 1;
                    let tokens = m
                        .get_mut(op.tokens)
                        .iter_mut()
                        .filter(|t| fault && **t <= last);
                    tokens.for_each(|token| *token = last - *token);
                    Ok(())
                }
                other => other.run(m),
            })
        },
    },
];

/// Runs a fused launch stage by stage.
pub(super) fn stages(
    launch: &Launch,
    memory: &mut Memory<'_>,
    mut run: impl FnMut(&Launch, &mut Memory<'_>) -> Result<(), LaunchError>,
) -> Result<(), LaunchError> {
    match launch {
        Launch::Fused(Fused { stages, .. }) => stages.iter().try_for_each(|s| run(s, memory)),
        other => other.run(memory),
    }
}

fn silu_mul(op: &SiluMul, m: &mut Memory<'_>, fault: bool) -> Result<(), LaunchError> {
    let [_, width] = m.dims(op.out);
    let mut out = m.take(op.out);
    for (x, out) in m
        .get(op.gate_up)
        .chunks_exact(2 * width)
        .zip(out.chunks_exact_mut(width))
    {
        let (gate, up) = x.split_at(width);
        for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
            let mut activated = silu(gate.to_f32());
            if !fault {
                activated = round_bf16(activated).to_f32();
            }
            *out = round_bf16(activated * up.to_f32());
        }
    }
    m.put(op.out, out);
    Ok(())
}
