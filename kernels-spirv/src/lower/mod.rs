//! Which kernels run for a launch, over which buffers, in how many workgroups: the same for Vulkan and Level Zero.
//!
//! A kernel is compiled for the model's shapes (its [`Kernel`] constants); what a step's shape decides stands in four
//! words of a uniform binding, behind the buffers.

mod elementwise;
mod head;
mod linears;
mod mixers;
mod moe;
mod norms;
mod ranks;

use crate::module::Kernel;
use layerlet_core::buffer::{Buf, BufferError, BufferId, BufferTable};
use layerlet_core::dtype::Element;
use layerlet_core::launch::{Launch, LaunchError};
use thiserror::Error;

/// Why a launch has no kernels.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum LowerError {
    #[error(transparent)]
    Buffer(#[from] BufferError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error(
        "buffer {name} has {elements} elements, the kernels count up to {}",
        u32::MAX
    )]
    TooManyElements { name: String, elements: usize },
    #[error("{op}: there is no GPU kernel for it")]
    NoKernel { op: &'static str },
    #[error("{op}: {what} takes {needed} bytes of workgroup memory, there are {WORKGROUP_MEMORY}")]
    WorkgroupMemory {
        op: &'static str,
        what: &'static str,
        needed: usize,
    },
}

/// Workgroup memory that every device with compute shaders of ours has.
pub const WORKGROUP_MEMORY: usize = 32 * 1024;

/// Most workgroups of one dimension that every device takes.
const MAX_GROUPS: usize = 65_535;

/// Storage that a kernel is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binding {
    /// A buffer of the plan.
    Buffer(BufferId),
    /// Memory between the kernels of one launch, by its place in [`Lowered::scratch`].
    Scratch(usize),
}

/// One run of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// What runs.
    pub kernel: Kernel,
    /// Storage bindings from 0 on; the uniform follows.
    pub bindings: Vec<Binding>,
    /// The uniform's words.
    pub step: [u32; 4],
    /// Workgroups; never 0.
    pub groups: [u32; 3],
}

/// The kernels of a launch in order, each after the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lowered {
    /// Runs of kernels; none where a launch has nothing to do.
    pub dispatches: Vec<Dispatch>,
    /// Bytes of each scratch memory.
    pub scratch: Vec<u64>,
}

/// Lowers one launch; a fused one stage by stage.
pub fn lower(launch: &Launch, buffers: &BufferTable) -> Result<Lowered, LowerError> {
    let mut lowering = Lowering {
        buffers,
        lowered: Lowered::default(),
    };
    lowering.launch(launch)?;
    Ok(lowering.lowered)
}

/// A launch on its way.
struct Lowering<'a> {
    buffers: &'a BufferTable,
    lowered: Lowered,
}

impl Lowering<'_> {
    fn launch(&mut self, launch: &Launch) -> Result<(), LowerError> {
        for operand in launch.operands() {
            let decl = self.buffers.get(operand.buffer)?;
            if decl.elements() > u32::MAX as usize {
                let (name, elements) = (decl.name.clone(), decl.elements());
                return Err(LowerError::TooManyElements { name, elements });
            }
        }
        match launch {
            Launch::Embedding(op) => self.embedding(op),
            Launch::RmsNorm(op) => self.rms_norm(op),
            Launch::AddRmsNorm(op) => self.add_rms_norm(op),
            Launch::QuantizeRows(op) => self.quantize_rows(op),
            Launch::LinearBf16(op) => self.linear_bf16(op),
            Launch::LinearW8A8(op) => self.linear_w8a8(op),
            Launch::CausalConv1d(op) => self.causal_conv1d(op),
            Launch::DeltaGates(op) => self.delta_gates(op),
            Launch::GatedDeltaRule(op) => self.gated_delta_rule(op),
            Launch::GatedRmsNorm(op) => self.gated_rms_norm(op),
            Launch::Rope(op) => self.rope(op),
            Launch::KvAppend(op) => self.kv_append(op),
            Launch::PagedAttention(op) => self.paged_attention(op),
            Launch::RouterTopK(op) => self.router_top_k(op),
            Launch::ExpertPrologue(op) => self.expert_prologue(op),
            Launch::GroupedLinearBf16(op) => self.grouped_linear_bf16(op),
            Launch::GroupedLinearW8A8(op) => self.grouped_linear_w8a8(op),
            Launch::SiluMul(op) => self.silu_mul(op),
            Launch::WeightedGather(op) => self.weighted_gather(op),
            Launch::SharedExpert(op) => self.shared_expert(op),
            Launch::GatherRows(op) => self.gather_rows(op),
            Launch::ConcatColumns(op) => self.concat_columns(op),
            Launch::LmHead(op) => self.lm_head(op),
            Launch::Argmax(op) => self.argmax(op),
            Launch::Sample(_) => Err(LowerError::NoKernel { op: launch.name() }),
            Launch::VerifyDrafts(op) => self.verify_drafts(op),
            Launch::RowAbsmax(op) => self.row_absmax(op),
            Launch::QuantizeRowsBy(op) => self.quantize_rows_by(op),
            Launch::LinearW8A8Partial(op) => self.linear_w8a8_partial(op),
            Launch::Dequantize(op) => self.dequantize(op),
            Launch::AllReduceMax(op) => self.all_reduce_max(op),
            Launch::AllReduceSum(op) => self.all_reduce_sum(op),
            Launch::AllGatherColumns(op) => self.all_gather_columns(op),
            Launch::LocalExperts(op) => self.local_experts(op),
            Launch::ExchangeSlotRows(op) => self.exchange_slot_rows(op),
            Launch::Fused(fused) => fused.stages.iter().try_for_each(|stage| self.launch(stage)),
        }
    }

    fn dims<E: Element, const N: usize>(&self, buf: Buf<E>) -> Result<[usize; N], BufferError> {
        self.buffers.dims(buf)
    }

    /// One workgroup for each of `groups`.
    fn groups<const N: usize>(
        &mut self,
        kernel: Kernel,
        bindings: [BufferId; N],
        step: [usize; 3],
        groups: usize,
    ) -> Result<(), LowerError> {
        if groups == 0 {
            return Ok(());
        }
        let x = groups.min(MAX_GROUPS);
        let [a, b, c] = step.map(|word| word as u32);
        self.lowered.dispatches.push(Dispatch {
            kernel,
            bindings: bindings.into_iter().map(Binding::Buffer).collect(),
            step: [a, b, c, 0],
            groups: [x as u32, groups.div_ceil(x) as u32, 1],
        });
        Ok(())
    }

    /// One invocation for each of `words`; the kernel knows how many `elements` there are.
    fn words<const N: usize>(
        &mut self,
        kernel: Kernel,
        bindings: [BufferId; N],
        elements: usize,
        words: usize,
    ) -> Result<(), LowerError> {
        self.groups(kernel, bindings, [elements, 0, 0], words.div_ceil(64))
    }
}
