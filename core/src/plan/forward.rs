//! The forward pass of a step, built from a layout and a step shape. Base operations only: fused
//! kernels come in by rewriting ([`super::fuse`]).

use super::layout::*;
use super::parallel::logits;
use super::step::{Head, StepBuffers, StepShape};
use super::{Plan, PlanError};
use crate::buffer::{Buf, BufferError, Role};
use crate::dtype::Element;
use crate::launch::Launch;
use crate::numerics::{bf16, rsqrt};
use crate::ops::*;
use alloc::{format, string::String, vec::Vec};

/// Epsilon under the roots of q's and k's sums of squares in the delta rule.
pub const DELTA_RULE_EPS: f32 = 1e-6;

/// The forward pass of one step.
pub fn forward(layout: &ModelLayout, shape: &StepShape) -> Result<Plan, PlanError> {
    shape.check(layout)?;
    let mut plan = Plan::over(layout.table());
    let step = StepBuffers::declare(&mut plan, shape)?;
    let mut b = Builder {
        plan,
        layout,
        step: &step,
        tokens: shape.tokens,
        output: if shape.trace {
            Role::Output
        } else {
            Role::Scratch
        },
    };
    let config = layout.config();
    let embed = b.rows("embed", config.hidden)?;
    b.push(Embedding {
        token_ids: step.token_ids,
        row_seq: step.row_seq,
        table: layout.embedding,
        out: embed,
    });
    let mut stream = Stream::First(embed);
    for (n, layer) in layout.layers.iter().enumerate() {
        let previous = n.checked_sub(1).map(|n| format!("layers.{n}.out"));
        let out = previous.unwrap_or_default();
        stream = b.layer(&format!("layers.{n}"), layer, stream, &out)?;
    }
    let last = format!("layers.{}.out", layout.layers.len() - 1);
    let (_, hidden) = b.norm(stream, layout.norm, &last, "final_norm")?;
    b.head(hidden, shape)?;
    let plan = b.plan;
    debug_assert_eq!(plan.validate(), Ok(()));
    Ok(plan)
}

/// The residual stream between two norms.
pub(super) enum Stream {
    /// Nothing to add yet.
    First(Buf<bf16>),
    /// The stream and what the next norm adds to it.
    Pending(Buf<bf16>, Buf<bf16>),
}

/// A plan under construction.
pub(super) struct Builder<'a> {
    pub plan: Plan,
    pub layout: &'a ModelLayout,
    pub step: &'a StepBuffers,
    /// Rows of the step.
    pub tokens: usize,
    /// Role of the buffers that only a trace shows.
    pub output: Role,
}

impl Builder<'_> {
    pub fn push(&mut self, launch: impl Into<Launch>) {
        self.plan.launches.push(launch.into());
    }

    pub fn buffer<E: Element>(
        &mut self,
        name: impl Into<String>,
        shape: &[usize],
    ) -> Result<Buf<E>, BufferError> {
        self.plan.buffers.declare(name, shape, Role::Scratch)
    }

    pub fn shown<E: Element>(
        &mut self,
        name: impl Into<String>,
        shape: &[usize],
    ) -> Result<Buf<E>, BufferError> {
        self.plan.buffers.declare(name, shape, self.output)
    }

    fn result(&mut self, name: &str, shape: &[usize]) -> Result<Buf<u32>, BufferError> {
        self.plan.buffers.declare(name, shape, Role::Output)
    }

    /// A shown bf16 buffer with one row a token.
    pub fn rows(&mut self, name: &str, width: usize) -> Result<Buf<bf16>, BufferError> {
        self.shown(name, &[self.tokens, width])
    }

    /// Adds what is pending and norms the sum: `(stream, normed)`.
    pub fn norm(
        &mut self,
        stream: Stream,
        weight: Buf<f32>,
        sum_name: &str,
        out_name: &str,
    ) -> Result<(Buf<bf16>, Buf<bf16>), BufferError> {
        let width = self.layout.config().hidden;
        let (eps, offset) = (self.layout.config().rms_norm_eps, WeightOffset::One);
        match stream {
            Stream::First(x) => {
                let out = self.rows(out_name, width)?;
                self.push(RmsNorm {
                    x,
                    weight,
                    out,
                    eps,
                    offset,
                    stride: width,
                });
                Ok((x, out))
            }
            Stream::Pending(x, delta) => {
                let sum = self.rows(sum_name, width)?;
                let out = self.rows(out_name, width)?;
                self.push(AddRmsNorm {
                    x,
                    delta,
                    weight,
                    sum,
                    out,
                    eps,
                    offset,
                });
                Ok((sum, out))
            }
        }
    }

    /// A decoder layer; what it adds last stays pending for the next norm.
    pub fn layer(
        &mut self,
        p: &str,
        layer: &LayerBuffers,
        stream: Stream,
        sum: &str,
    ) -> Result<Stream, PlanError> {
        let (x, h) = self.norm(stream, layer.input_norm, sum, &format!("{p}.input_norm"))?;
        let mixed = match &layer.mixer {
            MixerBuffers::DeltaNet(d) => self.delta_net(p, d, h)?,
            MixerBuffers::Attention(a) => self.attention(p, a, h)?,
        };
        let (x, h) = self.norm(
            Stream::Pending(x, mixed),
            layer.post_attention_norm,
            &format!("{p}.residual"),
            &format!("{p}.post_attention_norm"),
        )?;
        let moe = self.moe(p, &layer.moe, h)?;
        Ok(Stream::Pending(x, moe))
    }

    /// Linears over one input, which is quantised once if any of them needs codes.
    pub fn linears<const N: usize>(
        &mut self,
        x: Buf<bf16>,
        linears: [(LinearWeight, &str); N],
    ) -> Result<[Buf<bf16>; N], BufferError> {
        let first = linears[0].1;
        let quantised = linears
            .iter()
            .any(|(w, _)| matches!(w, LinearWeight::W8A8 { .. }));
        let codes = quantised.then(|| self.quantize(x, first)).transpose()?;
        let mut outs = Vec::with_capacity(N);
        for (weight, name) in linears {
            outs.push(self.linear(x, codes, weight, name)?);
        }
        Ok(outs.try_into().expect("one output a linear"))
    }

    pub fn quantize(
        &mut self,
        x: Buf<bf16>,
        name: &str,
    ) -> Result<(Buf<i8>, Buf<f32>), BufferError> {
        let [rows, k] = self.plan.buffers.dims(x)?;
        let codes = self.buffer(format!("{name}.codes"), &[rows, k])?;
        let scale = self.buffer(format!("{name}.scale"), &[rows])?;
        self.push(QuantizeRows { x, codes, scale });
        Ok((codes, scale))
    }

    fn linear(
        &mut self,
        x: Buf<bf16>,
        codes: Option<(Buf<i8>, Buf<f32>)>,
        weight: LinearWeight,
        name: &str,
    ) -> Result<Buf<bf16>, BufferError> {
        let [rows, _] = self.plan.buffers.dims(x)?;
        match (weight, codes) {
            (
                LinearWeight::W8A8 {
                    weight,
                    scale: weight_scale,
                },
                Some((codes, scale)),
            ) => {
                let [n, _] = self.plan.buffers.dims(weight)?;
                let out = self.shown(name, &[rows, n])?;
                self.push(LinearW8A8 {
                    codes,
                    scale,
                    weight,
                    weight_scale,
                    out,
                });
                Ok(out)
            }
            (LinearWeight::Bf16(weight), _) => {
                let [n, _] = self.plan.buffers.dims(weight)?;
                let out = self.shown(name, &[rows, n])?;
                self.push(LinearBf16 { x, weight, out });
                Ok(out)
            }
            (LinearWeight::W8A8 { .. }, None) => unreachable!("linears() quantises for W8A8"),
        }
    }

    fn delta_net(
        &mut self,
        p: &str,
        d: &DeltaNetBuffers,
        h: Buf<bf16>,
    ) -> Result<Buf<bf16>, BufferError> {
        let config = &self.layout.local().delta_net;
        let (t, heads, channels) = (self.tokens, config.value_heads, config.channels());
        let values = heads * config.value_dim;
        let [qkv, z, b, a] = self.linears(
            h,
            [
                (d.in_proj_qkv, &format!("{p}.qkv")),
                (d.in_proj_z, &format!("{p}.z")),
                (d.in_proj_b, &format!("{p}.b")),
                (d.in_proj_a, &format!("{p}.a")),
            ],
        )?;
        let conv = self.buffer(format!("{p}.conv"), &[t, channels])?;
        self.push(CausalConv1d {
            x: qkv,
            weight: d.conv1d,
            seq_rows: self.step.seq_rows,
            state_read: self.step.state_read,
            state_write: self.step.state_write,
            state: d.conv_state,
            out: conv,
        });
        let decay = self.buffer(format!("{p}.decay"), &[t, heads])?;
        let beta = self.buffer(format!("{p}.beta"), &[t, heads])?;
        self.push(DeltaGates {
            a,
            b,
            a_log: d.a_log,
            dt_bias: d.dt_bias,
            decay,
            beta,
        });
        let out = self.buffer(format!("{p}.delta_rule"), &[t, values])?;
        self.push(GatedDeltaRule {
            qkv: conv,
            decay,
            beta,
            seq_rows: self.step.seq_rows,
            state_read: self.step.state_read,
            state_write: self.step.state_write,
            state: d.ssm_state,
            out,
            key_heads: config.key_heads,
            l2_eps: DELTA_RULE_EPS,
            scale: rsqrt(config.key_dim as f32),
        });
        let gated = self.buffer(format!("{p}.gated_norm"), &[t, values])?;
        let eps = self.layout.config().rms_norm_eps;
        self.push(GatedRmsNorm {
            x: out,
            gate: z,
            weight: d.norm,
            out: gated,
            eps,
        });
        self.output_linear(gated, d.out_proj, &format!("{p}.mixer_out"))
    }

    fn attention(
        &mut self,
        p: &str,
        w: &AttentionBuffers,
        h: Buf<bf16>,
    ) -> Result<Buf<bf16>, BufferError> {
        let config = &self.layout.local().attention;
        let (t, dim) = (self.tokens, config.head_dim);
        let (eps, offset) = (self.layout.config().rms_norm_eps, WeightOffset::One);
        let (q_width, kv_width) = (config.heads * dim, config.kv_heads * dim);
        let [q_gate, k, v] = self.linears(
            h,
            [
                (w.q_proj, &format!("{p}.q_gate")),
                (w.k_proj, &format!("{p}.k")),
                (w.v_proj, &format!("{p}.v")),
            ],
        )?;
        let q_normed = self.buffer(format!("{p}.q_norm"), &[t, q_width])?;
        self.push(RmsNorm {
            x: q_gate,
            weight: w.q_norm,
            out: q_normed,
            eps,
            offset,
            stride: 2 * dim,
        });
        let k_normed = self.buffer(format!("{p}.k_norm"), &[t, kv_width])?;
        self.push(RmsNorm {
            x: k,
            weight: w.k_norm,
            out: k_normed,
            eps,
            offset,
            stride: dim,
        });
        let q = self.rope(p, "q_rope", q_normed, q_width)?;
        let k = self.rope(p, "k_rope", k_normed, kv_width)?;
        let (positions, row_seq) = (self.step.positions, self.step.row_seq);
        let (k_cache, v_cache, page_table) = (w.k_cache, w.v_cache, self.step.page_table);
        self.push(KvAppend {
            k,
            v,
            positions,
            row_seq,
            page_table,
            k_cache,
            v_cache,
        });
        let out = self.buffer(format!("{p}.attention"), &[t, q_width])?;
        let scale = rsqrt(dim as f32);
        self.push(PagedAttention {
            q,
            q_gate,
            k_cache,
            v_cache,
            positions,
            row_seq,
            page_table,
            out,
            scale,
        });
        self.output_linear(out, w.o_proj, &format!("{p}.mixer_out"))
    }

    fn rope(
        &mut self,
        p: &str,
        name: &str,
        x: Buf<bf16>,
        width: usize,
    ) -> Result<Buf<bf16>, BufferError> {
        let out = self.buffer(format!("{p}.{name}"), &[self.tokens, width])?;
        let (positions, table) = (self.step.positions, self.layout.rope_table);
        let head_dim = self.layout.config().attention.head_dim;
        self.push(Rope {
            x,
            positions,
            table,
            out,
            head_dim,
        });
        Ok(out)
    }

    fn moe(&mut self, p: &str, w: &MoeBuffers, h: Buf<bf16>) -> Result<Buf<bf16>, BufferError> {
        let routed = self.routed_experts(p, w, h)?;
        let width = self.layout.config().hidden;
        let shared_width = self.layout.local().moe.shared_intermediate;
        let [gate_up, gate] = self.linears(
            h,
            [
                (w.shared_gate_up, &format!("{p}.shared_gate_up")),
                (w.shared_gate, &format!("{p}.shared_gate")),
            ],
        )?;
        let activated =
            self.buffer(format!("{p}.shared_silu_mul"), &[self.tokens, shared_width])?;
        self.push(SiluMul {
            gate_up,
            out: activated,
        });
        let shared = self.output_linear(activated, w.shared_down, &format!("{p}.shared_down"))?;
        let out = self.rows(&format!("{p}.moe_out"), width)?;
        self.push(SharedExpert {
            shared,
            gate,
            routed,
            out,
        });
        Ok(out)
    }

    fn head(&mut self, hidden: Buf<bf16>, shape: &StepShape) -> Result<(), PlanError> {
        let r = shape.outputs;
        let out_rows = self.step.out_rows;
        let role = if shape.head == Head::Logits {
            Role::Output
        } else {
            self.output
        };
        let logits = logits(
            &mut self.plan,
            self.layout,
            hidden,
            out_rows,
            "logits",
            role,
        )?;
        match (&shape.head, &self.step.sampling) {
            (Head::Logits, _) => Ok(()),
            (Head::Argmax, _) => {
                let tokens = self.result("tokens", &[r])?;
                self.push(Argmax {
                    logits,
                    out_rows,
                    tokens,
                });
                self.verify(tokens, shape)
            }
            (Head::Sample { .. }, Some(s)) => {
                let tokens = self.result("tokens", &[r])?;
                self.push(s.launch(logits, out_rows, tokens));
                self.verify(tokens, shape)
            }
            (Head::Sample { .. }, None) => unreachable!("declared with the step"),
        }
    }

    fn verify(&mut self, tokens: Buf<u32>, shape: &StepShape) -> Result<(), PlanError> {
        if shape.verify {
            let accepted = self.result("accepted", &[shape.sequences])?;
            let (token_ids, out_rows, seq_outs) =
                (self.step.token_ids, self.step.out_rows, self.step.seq_outs);
            self.push(VerifyDrafts {
                tokens,
                token_ids,
                out_rows,
                seq_outs,
                accepted,
            });
        }
        Ok(())
    }
}
