//! From a kernel's source and constants to a checked module.

use crate::source::compose;
use naga::back::{PipelineConstants, pipeline_constants};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use thiserror::Error;

/// Why a kernel cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum KernelError {
    #[error("there is no kernel source {name}.wgsl")]
    NoSuchSource { name: String },
    #[error("{kernel}.wgsl: a directive that nobody knows: {line}")]
    Directive { kernel: String, line: String },
    #[error("{kernel}.wgsl: {message}")]
    Wgsl { kernel: String, message: String },
    #[error("{kernel}: {stage}: {message}")]
    Compile {
        kernel: String,
        stage: &'static str,
        message: String,
    },
}

/// A source and the values of its overrides: what is compiled, and what two launches may share.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kernel {
    /// Name of the source.
    pub name: &'static str,
    /// Bits of an f64 for each override; u32 and f32 are exact in it.
    constants: Vec<(&'static str, u64)>,
}

impl Kernel {
    /// A kernel without constants.
    pub fn new(name: &'static str) -> Kernel {
        let constants = Vec::new();
        Kernel { name, constants }
    }

    /// With an integer constant.
    pub fn with(mut self, name: &'static str, value: usize) -> Kernel {
        self.constants.push((name, (value as f64).to_bits()));
        self
    }

    /// With an f32 constant.
    pub fn with_f32(mut self, name: &'static str, value: f32) -> Kernel {
        self.constants.push((name, f64::from(value).to_bits()));
        self
    }

    /// Overrides and their values.
    pub fn constants(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let values = self.constants.iter();
        values.map(|&(name, bits)| (name, f64::from_bits(bits)))
    }
}

/// What an entry point does with a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Use {
    /// Storage that is only read.
    Read,
    /// Storage that is written.
    Write,
    /// The four words that change with the shape of a step.
    Uniform,
}

/// A module with its constants in place.
#[derive(Clone, Debug)]
pub struct Module {
    /// The kernel's name.
    pub name: &'static str,
    /// naga's intermediate representation: the entry point `main` and what it uses.
    pub ir: naga::Module,
    /// What naga's validation found.
    pub info: ModuleInfo,
    /// Bindings of group 0, from 0 on.
    pub bindings: Vec<Use>,
    /// Invocations of a workgroup.
    pub workgroup: [u32; 3],
}

/// Parses, checks and specialises a kernel.
pub fn module(kernel: &Kernel) -> Result<Module, KernelError> {
    let text = compose(kernel.name)?;
    let ir = naga::front::wgsl::parse_str(&text).map_err(|e| KernelError::Wgsl {
        kernel: kernel.name.into(),
        message: e.emit_to_string(&text),
    })?;
    let fail = |stage: &'static str, message: String| KernelError::Compile {
        kernel: kernel.name.into(),
        stage,
        message,
    };
    let info = validate(&ir).map_err(|e| fail("validation", e))?;
    let constants: PipelineConstants = kernel
        .constants()
        .map(|(name, value)| (name.to_string(), value))
        .collect();
    let entry = Some((naga::ShaderStage::Compute, "main"));
    let (ir, info) = pipeline_constants::process_overrides(&ir, &info, entry, &constants)
        .map_err(|e| fail("constants", e.to_string()))?;
    let (ir, info) = (ir.into_owned(), info.into_owned());
    let bindings = bindings(&ir).map_err(|e| fail("bindings", e))?;
    let workgroup = ir.entry_points[0].workgroup_size;
    Ok(Module {
        name: kernel.name,
        ir,
        info,
        bindings,
        workgroup,
    })
}

/// Uniform control flow around barriers is the kernels' own business: naga's analysis takes every value that was loaded
/// for one that differs between invocations.
fn validate(ir: &naga::Module) -> Result<ModuleInfo, String> {
    let flags = ValidationFlags::all() & !ValidationFlags::CONTROL_FLOW_UNIFORMITY;
    let info = Validator::new(flags, Capabilities::default()).validate(ir);
    info.map_err(|e| format!("{:?}", e.into_inner()))
}

fn bindings(ir: &naga::Module) -> Result<Vec<Use>, String> {
    let mut found: Vec<(u32, Use)> = Vec::new();
    for (_, variable) in ir.global_variables.iter() {
        let Some(binding) = &variable.binding else {
            continue;
        };
        let used = match variable.space {
            naga::AddressSpace::Uniform => Use::Uniform,
            naga::AddressSpace::Storage { access }
                if access.contains(naga::StorageAccess::STORE) =>
            {
                Use::Write
            }
            naga::AddressSpace::Storage { .. } => Use::Read,
            other => return Err(format!("a binding in {other:?}")),
        };
        found.push((binding.binding, used));
    }
    found.sort_unstable_by_key(|(binding, _)| *binding);
    let dense = found.iter().zip(0u32..).all(|((at, _), n)| *at == n);
    match dense {
        true => Ok(found.into_iter().map(|(_, used)| used).collect()),
        false => Err(format!("{found:?}, expected all from 0 on")),
    }
}
