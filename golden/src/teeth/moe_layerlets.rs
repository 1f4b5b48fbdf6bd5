//! More mutants of the fused mixture of experts: what a kernel is tempted to do that has everything
//! at hand.

use super::layerlets::stages;
use super::router::{Gather, weighted_gather};
use super::{Mutant, misread};
use layerlet_core::NONE;
use layerlet_core::launch::{Launch, LaunchError};
use layerlet_core::memory::Memory;
use layerlet_core::numerics::{round_bf16, sigmoid};
use layerlet_core::ops::{SharedExpert, WeightedGather};

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        op: "routed_moe",
        fault: "adds the experts in their own order",
        kernel: |launch, m, fault| {
            stages(launch, m, |stage, m| match stage {
                Launch::WeightedGather(op) => {
                    weighted_gather(op, m, fault.then_some(Gather::ExpertOrder))
                }
                other => other.run(m),
            })
        },
    },
    Mutant {
        op: "moe_layer",
        fault: "adds the shared expert to the routed sum before that is rounded",
        kernel: |launch, m, fault| {
            let mut routed = None;
            stages(launch, m, |stage, m| match (stage, &routed) {
                (Launch::WeightedGather(op), _) => {
                    routed = Some(op.clone()).filter(|_| fault);
                    stage.run(m)
                }
                (Launch::SharedExpert(op), Some(routed)) => one_sum(op, routed, m),
                _ => stage.run(m),
            })
        },
    },
    Mutant {
        op: "moe_layer",
        fault: "routes inert rows too",
        kernel: |launch, m, fault| {
            stages(launch, m, |stage, m| match stage {
                Launch::RouterTopK(op) => misread(op, m, op.row_seq, fault, |rows| rows.fill(0)),
                other => other.run(m),
            })
        },
    },
];

fn one_sum(
    op: &SharedExpert,
    routed: &WeightedGather,
    memory: &mut Memory<'_>,
) -> Result<(), LaunchError> {
    let mut out = memory.take(op.out);
    let ([_, k], [_, width]) = (memory.dims(routed.weights), memory.dims(op.out));
    let y = memory.get(routed.y);
    let pairs = memory.get(routed.row_of_slot).chunks_exact(k);
    let pairs: Vec<_> = pairs
        .zip(memory.get(routed.weights).chunks_exact(k))
        .collect();
    let inputs = memory.get(op.shared).iter();
    for (i, (out, shared)) in out.iter_mut().zip(inputs).enumerate() {
        let (token, h) = (i / width, i % width);
        let (rows, weights) = pairs[token];
        let pairs = rows.iter().zip(weights).filter(|(row, _)| **row != NONE);
        let sum = pairs.fold(0.0, |sum, (row, weight)| {
            sum + weight * y[*row as usize * width + h].to_f32()
        });
        let gate = round_bf16(sigmoid(memory.get(op.gate)[token].to_f32()));
        let gated = round_bf16(gate.to_f32() * shared.to_f32());
        *out = round_bf16(gated.to_f32() + sum);
    }
    memory.put(op.out, out);
    Ok(())
}
