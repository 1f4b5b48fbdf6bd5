//! A route as a case: from the routes to the weighted sum (`routed_moe`), or with a router that chooses
//! them, and a shared expert (`moe_layer`).

use super::route::Route;
use crate::case::Case;
use crate::checks::Failure;
use crate::generate::{Fill, Source, generate};
use layerlet_core::NONE;
use layerlet_core::buffer::{Buf, BufferError, BufferId, BufferTable, Role};
use layerlet_core::dtype::Element;
use layerlet_core::launch::{Fused, Launch, Layerlet};
use layerlet_core::numerics::{bf16, round_bf16};
use layerlet_core::ops::*;
use layerlet_core::plan::{LinearFormat, Plan};

/// Hidden size; the router of [`Layerlet::MoeLayer`] reads its logits from the first columns.
pub const HIDDEN: usize = 37;
/// Inner size of the routed experts.
pub const INNER: usize = 20;
/// Inner size of the shared expert.
const SHARED: usize = 28;
/// Seed of weights and hidden states.
const SEED: u64 = 11;

/// Whether a layerlet can be checked with this route.
pub fn fits(layerlet: Layerlet, route: &Route) -> bool {
    layerlet == Layerlet::RoutedMoe || route.experts() <= HIDDEN && route.k() <= route.experts()
}

/// The case of a route.
pub fn case(layerlet: Layerlet, format: LinearFormat, route: &Route) -> Result<Case, Failure> {
    let build = || -> Result<Case, BufferError> {
        let mut builder = Builder::new(layerlet, format, route)?;
        let stages = builder.stages(layerlet, format)?;
        let mut case = builder.case;
        case.plan.launches = vec![Launch::Fused(Fused {
            layerlet,
            stages,
            keep_intermediates: false,
        })];
        Ok(case)
    };
    let mut case = build().map_err(|e| Failure::message(e.to_string()))?;
    let moe_layer = layerlet == Layerlet::MoeLayer;
    fill(&mut case, moe_layer, route).map_err(Failure::message)?;
    Ok(case)
}

struct Builder {
    case: Case,
    tokens: usize,
    k: usize,
    experts: usize,
}

/// A linear's weights.
#[derive(Clone, Copy)]
enum Weights {
    Bf16(Buf<bf16>),
    W8A8(Buf<i8>, Buf<f32>),
}

impl Builder {
    /// Declares the model's buffers; they come first.
    fn new(layerlet: Layerlet, format: LinearFormat, route: &Route) -> Result<Self, BufferError> {
        let (tokens, k, experts) = (route.tokens(), route.k(), route.experts());
        let table = &mut BufferTable::default();
        declare_weights(table, "up", &[experts, 2 * INNER, HIDDEN], format)?;
        declare_weights(table, "down", &[experts, HIDDEN, INNER], format)?;
        if layerlet == Layerlet::MoeLayer {
            table.declare::<bf16>("router", &[experts, HIDDEN], Role::Weight)?;
            table.declare::<bf16>("shared_gate", &[1, HIDDEN], Role::Weight)?;
            declare_weights(table, "shared_up", &[2 * SHARED, HIDDEN], format)?;
            declare_weights(table, "shared_down", &[HIDDEN, SHARED], format)?;
        }
        let case = Case {
            name: format!("{format:?}, {route}"),
            subject: layerlet.name(),
            plan: Plan::over(table),
            inputs: Vec::new(),
        };
        Ok(Builder {
            case,
            tokens,
            k,
            experts,
        })
    }

    fn stages(
        &mut self,
        layerlet: Layerlet,
        format: LinearFormat,
    ) -> Result<Vec<Launch>, BufferError> {
        let (t, k) = (self.tokens, self.k);
        let mut stages = Vec::new();
        let x: Buf<bf16> = self.step("x", &[t, HIDDEN])?;
        if layerlet == Layerlet::RoutedMoe {
            let routes = (self.step("ids", &[t, k])?, self.step("weights", &[t, k])?);
            let out = self.output("out", &[t, HIDDEN])?;
            self.routed(&mut stages, x, routes, out, format)?;
            return Ok(stages);
        }
        let row_seq = self.step("row_seq", &[t])?;
        let logits = self.scratch("logits", &[t, self.experts])?;
        let weight = self.model("router")?;
        stages.push(
            LinearBf16 {
                x,
                weight,
                out: logits,
            }
            .into(),
        );
        let (ids, weights) = (
            self.scratch("ids", &[t, k])?,
            self.scratch("weights", &[t, k])?,
        );
        stages.push(
            RouterTopK {
                logits,
                row_seq,
                ids,
                weights,
            }
            .into(),
        );
        let routed = self.scratch("routed", &[t, HIDDEN])?;
        self.routed(&mut stages, x, (ids, weights), routed, format)?;
        let out = self.output("out", &[t, HIDDEN])?;
        self.shared(&mut stages, x, routed, out, format)?;
        Ok(stages)
    }

    fn routed(
        &mut self,
        stages: &mut Vec<Launch>,
        x: Buf<bf16>,
        (ids, weights): (Buf<u32>, Buf<f32>),
        out: Buf<bf16>,
        format: LinearFormat,
    ) -> Result<(), BufferError> {
        let pairs = self.tokens * self.k;
        let offsets = self.scratch("offsets", &[self.experts + 1])?;
        let slot_of_row = self.scratch("slot_of_row", &[pairs])?;
        let row_of_slot = self.scratch("row_of_slot", &[pairs])?;
        stages.push(
            ExpertPrologue {
                ids,
                offsets,
                slot_of_row,
                row_of_slot,
            }
            .into(),
        );
        let routes = (offsets, slot_of_row);
        let gate_up = self.scratch("gate_up", &[pairs, 2 * INNER])?;
        let source = RowSource::Token { k: self.k };
        self.grouped(stages, x, "up", routes, gate_up, source, format)?;
        let act = self.scratch("act", &[pairs, INNER])?;
        stages.push(SiluMul { gate_up, out: act }.into());
        let y = self.scratch("y", &[pairs, HIDDEN])?;
        self.grouped(stages, act, "down", routes, y, RowSource::Row, format)?;
        stages.push(
            WeightedGather {
                y,
                row_of_slot,
                weights,
                out,
            }
            .into(),
        );
        Ok(())
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "an operation has as many operands"
    )]
    fn grouped(
        &mut self,
        stages: &mut Vec<Launch>,
        x: Buf<bf16>,
        name: &str,
        (offsets, slot_of_row): (Buf<u32>, Buf<u32>),
        out: Buf<bf16>,
        source: RowSource,
        format: LinearFormat,
    ) -> Result<(), BufferError> {
        match self.weights(name, format)? {
            Weights::Bf16(weight) => stages.push(
                GroupedLinearBf16 {
                    x,
                    weight,
                    offsets,
                    slot_of_row,
                    out,
                    source,
                }
                .into(),
            ),
            Weights::W8A8(weight, weight_scale) => {
                let (codes, scale) = self.quantize(stages, x, name)?;
                stages.push(
                    GroupedLinearW8A8 {
                        codes,
                        scale,
                        weight,
                        weight_scale,
                        offsets,
                        slot_of_row,
                        out,
                        source,
                    }
                    .into(),
                );
            }
        }
        Ok(())
    }

    fn shared(
        &mut self,
        stages: &mut Vec<Launch>,
        x: Buf<bf16>,
        routed: Buf<bf16>,
        out: Buf<bf16>,
        format: LinearFormat,
    ) -> Result<(), BufferError> {
        let t = self.tokens;
        let gate_up = self.scratch("shared_gate_up", &[t, 2 * SHARED])?;
        let gate = self.scratch("gate", &[t, 1])?;
        let gate_linear = LinearBf16 {
            x,
            weight: self.model("shared_gate")?,
            out: gate,
        };
        self.linear(stages, x, "shared_up", gate_up, format)?;
        // The gate reads the same rows, before or after the codes.
        stages.push(gate_linear.into());
        let act = self.scratch("shared_act", &[t, SHARED])?;
        stages.push(SiluMul { gate_up, out: act }.into());
        let shared = self.scratch("shared", &[t, HIDDEN])?;
        self.linear(stages, act, "shared_down", shared, format)?;
        stages.push(
            SharedExpert {
                shared,
                gate,
                routed,
                out,
            }
            .into(),
        );
        Ok(())
    }

    fn linear(
        &mut self,
        stages: &mut Vec<Launch>,
        x: Buf<bf16>,
        name: &str,
        out: Buf<bf16>,
        format: LinearFormat,
    ) -> Result<(), BufferError> {
        match self.weights(name, format)? {
            Weights::Bf16(weight) => stages.push(LinearBf16 { x, weight, out }.into()),
            Weights::W8A8(weight, weight_scale) => {
                let (codes, scale) = self.quantize(stages, x, name)?;
                let linear = LinearW8A8 {
                    codes,
                    scale,
                    weight,
                    weight_scale,
                    out,
                };
                stages.push(linear.into());
            }
        }
        Ok(())
    }

    fn quantize(
        &mut self,
        stages: &mut Vec<Launch>,
        x: Buf<bf16>,
        name: &str,
    ) -> Result<(Buf<i8>, Buf<f32>), BufferError> {
        let [rows, width] = self.case.plan.buffers.dims(x)?;
        let codes = self.scratch(&format!("{name}_codes"), &[rows, width])?;
        let scale = self.scratch(&format!("{name}_row_scale"), &[rows])?;
        stages.push(QuantizeRows { x, codes, scale }.into());
        Ok((codes, scale))
    }

    fn weights(&self, name: &str, format: LinearFormat) -> Result<Weights, BufferError> {
        Ok(match format {
            LinearFormat::Bf16 => Weights::Bf16(self.model(name)?),
            LinearFormat::W8A8 => {
                Weights::W8A8(self.model(name)?, self.model(&format!("{name}_scale"))?)
            }
        })
    }

    fn model<E: Element>(&self, name: &str) -> Result<Buf<E>, BufferError> {
        self.case.plan.buffers.find_typed(name)
    }

    fn declare<E: Element>(
        &mut self,
        name: &str,
        shape: &[usize],
        role: Role,
    ) -> Result<Buf<E>, BufferError> {
        self.case.plan.buffers.declare(name, shape, role)
    }

    fn step<E: Element>(&mut self, name: &str, shape: &[usize]) -> Result<Buf<E>, BufferError> {
        self.declare(name, shape, Role::Step)
    }

    fn scratch<E: Element>(&mut self, name: &str, shape: &[usize]) -> Result<Buf<E>, BufferError> {
        self.declare(name, shape, Role::Scratch)
    }

    fn output<E: Element>(&mut self, name: &str, shape: &[usize]) -> Result<Buf<E>, BufferError> {
        self.declare(name, shape, Role::Output)
    }
}

fn declare_weights(
    table: &mut BufferTable,
    name: &str,
    shape: &[usize],
    format: LinearFormat,
) -> Result<(), BufferError> {
    match format {
        LinearFormat::Bf16 => table.declare::<bf16>(name, shape, Role::Weight).map(drop),
        LinearFormat::W8A8 => {
            table.declare::<i8>(name, shape, Role::Weight)?;
            let scales = &shape[..shape.len() - 1];
            table.declare::<f32>(format!("{name}_scale"), scales, Role::Weight)?;
            Ok(())
        }
    }
}

/// Generates what the case reads. A router chooses the route's experts: its weights are the identity, and
/// the first columns of a hidden state are the logits.
fn fill(case: &mut Case, moe_layer: bool, route: &Route) -> Result<(), String> {
    let read = case.plan.buffers.iter();
    let read = read.filter(|(_, d)| matches!(d.role, Role::Weight | Role::Step));
    let mut inputs: Vec<(BufferId, Vec<u8>)> = Vec::new();
    for (id, decl) in read {
        let bytes = match decl.name.as_str() {
            "x" => bytemuck::cast_slice(&hidden(moe_layer, route)).to_vec(),
            "ids" => bytemuck::cast_slice(&ids(route)).to_vec(),
            "weights" => bytemuck::cast_slice(&route.topk_weights.concat()).to_vec(),
            "row_seq" => bytemuck::cast_slice(&row_seq(route)).to_vec(),
            "router" => bytemuck::cast_slice(&identity(route.experts())).to_vec(),
            name if name.ends_with("_scale") => generate(&Fill::Uniform([5e-4, 3e-3]), decl, SEED)?,
            _ if decl.dtype == layerlet_core::dtype::DType::I8 => {
                generate(&Fill::Codes, decl, SEED)?
            }
            _ => generate(&Fill::Normal(0.3), decl, SEED)?,
        };
        inputs.push((id, bytes));
    }
    case.inputs = inputs;
    Ok(())
}

fn ids(route: &Route) -> Vec<u32> {
    let ids = route.topk_ids.iter().flatten();
    ids.map(|id| u32::try_from(*id).unwrap_or(NONE)).collect()
}

/// A token all of whose pairs go nowhere belongs to no sequence.
fn row_seq(route: &Route) -> Vec<u32> {
    let inert = |ids: &Vec<i64>| ids.iter().all(|id| *id < 0);
    let rows = route.topk_ids.iter();
    rows.map(|ids| if inert(ids) { NONE } else { 0 }).collect()
}

fn identity(experts: usize) -> Vec<bf16> {
    (0..experts * HIDDEN)
        .map(|i| match i / HIDDEN == i % HIDDEN {
            true => bf16::from_f32(1.0),
            false => bf16::ZERO,
        })
        .collect()
}

fn hidden(moe_layer: bool, route: &Route) -> Vec<bf16> {
    let source = Source::new(SEED, "x");
    let mut x = Vec::with_capacity(route.tokens() * HIDDEN);
    for t in 0..route.tokens() {
        for column in 0..HIDDEN {
            let word = source.words((t * HIDDEN + column) as u64)[0];
            let unit = word as f32 / 2_147_483_648.0 - 1.0;
            x.push(round_bf16(unit * route.scale(t)));
        }
        if moe_layer {
            let row = &mut x[t * HIDDEN..];
            for (expert, column) in row.iter_mut().take(route.experts()).enumerate() {
                *column = bf16::from_f32(logit(route, t, expert));
            }
        }
    }
    x
}

/// Equal weights give equal logits; experts that are not named tie far below.
fn logit(route: &Route, token: usize, expert: usize) -> f32 {
    let (ids, weights) = (&route.topk_ids[token], &route.topk_weights[token]);
    match ids.iter().position(|id| *id == expert as i64) {
        None => -8.0,
        Some(rank) => 4.0 - 0.5 * weights.iter().filter(|w| **w > weights[rank]).count() as f32,
    }
}
