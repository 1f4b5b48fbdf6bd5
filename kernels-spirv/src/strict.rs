//! The pass that forbids contraction in Vulkan SPIR-V, and the only type that a Vulkan backend can load.
//!
//! naga marks nothing: a driver may then fuse a product into a sum, or regroup sums, and does. Every float result gets
//! `NoContraction`; signs of zeros, infinities and NaNs are kept, and subnormals where the device can promise it.

use crate::module::{Kernel, KernelError, Module, Use, module};
use naga::back::spv;
use rspirv::binary::Assemble;
use rspirv::dr::{Instruction, Operand};
use rspirv::spirv::{Capability, Decoration, ExecutionMode, Op};
use sha2::{Digest, Sha256};

/// Float controls beyond NoContraction that a device offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Controls {
    /// `SignedZeroInfNanPreserve` for 32 bits.
    pub signed_zero_inf_nan: bool,
    /// `DenormPreserve` for 32 bits.
    pub denorm_preserve: bool,
}

/// A module that no compiler may contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strict {
    words: Vec<u32>,
    bindings: Vec<Use>,
    workgroup: [u32; 3],
}

impl Strict {
    /// Compiles a kernel.
    pub fn compile(kernel: &Kernel, controls: Controls) -> Result<Strict, KernelError> {
        Strict::new(&module(kernel)?, controls)
    }

    /// Writes a module and passes it.
    pub fn new(module: &Module, controls: Controls) -> Result<Strict, KernelError> {
        let fail = |stage: &'static str, message: String| KernelError::Compile {
            kernel: module.name.into(),
            stage,
            message,
        };
        let words = write(module).map_err(|e| fail("SPIR-V", e))?;
        Ok(Strict {
            words: pass(&words, controls).map_err(|e| fail("strict", e))?,
            bindings: module.bindings.clone(),
            workgroup: module.workgroup,
        })
    }

    /// The SPIR-V.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Bindings of group 0, from 0 on.
    pub fn bindings(&self) -> &[Use] {
        &self.bindings
    }

    /// Invocations of a workgroup.
    pub fn workgroup(&self) -> [u32; 3] {
        self.workgroup
    }

    /// SHA-256 of the SPIR-V; constants are part of it.
    pub fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        for word in &self.words {
            hash.update(word.to_le_bytes());
        }
        hash.finalize().into()
    }
}

fn write(module: &Module) -> Result<Vec<u32>, String> {
    let options = spv::Options {
        lang_version: (1, 3),
        flags: spv::WriterFlags::empty(),
        zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
        force_loop_bounding: false,
        emit_int_div_checks: false,
        ..spv::Options::default()
    };
    spv::write_vec(&module.ir, &module.info, &options, None).map_err(|e| e.to_string())
}

/// Instructions whose result a compiler could contract or regroup.
fn rounds(op: Op) -> bool {
    use Op::*;
    matches!(
        op,
        FAdd | FSub
            | FMul
            | FDiv
            | FRem
            | FMod
            | FNegate
            | VectorTimesScalar
            | MatrixTimesScalar
            | VectorTimesMatrix
            | MatrixTimesVector
            | MatrixTimesMatrix
            | OuterProduct
            | Dot
    )
}

fn pass(words: &[u32], controls: Controls) -> Result<Vec<u32>, String> {
    let mut module = rspirv::dr::load_words(words).map_err(|e| e.to_string())?;
    let results: Vec<u32> = module
        .all_inst_iter()
        .filter(|i| rounds(i.class.opcode))
        .filter_map(|i| i.result_id)
        .collect();
    for id in results {
        let operands = vec![
            Operand::IdRef(id),
            Operand::Decoration(Decoration::NoContraction),
        ];
        let decorate = Instruction::new(Op::Decorate, None, None, operands);
        module.annotations.push(decorate);
    }
    let wanted = [
        (
            controls.signed_zero_inf_nan,
            Capability::SignedZeroInfNanPreserve,
            ExecutionMode::SignedZeroInfNanPreserve,
        ),
        (
            controls.denorm_preserve,
            Capability::DenormPreserve,
            ExecutionMode::DenormPreserve,
        ),
    ];
    let entries: Vec<u32> = module
        .entry_points
        .iter()
        .filter_map(|e| e.operands.get(1)?.id_ref_any())
        .collect();
    let mut extended = false;
    for (_, capability, mode) in wanted.into_iter().filter(|(on, ..)| *on) {
        extended = true;
        let operands = vec![Operand::Capability(capability)];
        let declare = Instruction::new(Op::Capability, None, None, operands);
        module.capabilities.push(declare);
        for &entry in &entries {
            let operands = vec![
                Operand::IdRef(entry),
                Operand::ExecutionMode(mode),
                Operand::LiteralBit32(32),
            ];
            let set = Instruction::new(Op::ExecutionMode, None, None, operands);
            module.execution_modes.push(set);
        }
    }
    if extended {
        let operands = vec![Operand::LiteralString("SPV_KHR_float_controls".into())];
        let extension = Instruction::new(Op::Extension, None, None, operands);
        module.extensions.push(extension);
    }
    Ok(module.assemble())
}
