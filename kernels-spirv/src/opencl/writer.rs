//! The module around the functions: declarations, arguments and the entry point.

use super::{
    Kernel, Options,
    error::Error,
    function::Kind,
    interface::{Argument, Binding, Capability, Interface},
    types::Form,
};
use naga::{
    AddressSpace, ArraySize, Block, Function, GlobalVariable, Handle, Module, Override,
    ShaderStage, Statement, StorageAccess, TypeInner, valid::ModuleInfo,
};
use rspirv::{
    binary::Assemble,
    dr::{Builder, Operand},
    spirv::{self, StorageClass, Word},
};
use std::collections::{BTreeSet, HashMap, HashSet};

pub(super) struct Writer<'a> {
    pub(super) module: &'a Module,
    pub(super) info: &'a ModuleInfo,
    pub(super) b: Builder,
    /// The instructions of `OpenCL.std`.
    pub(super) opencl: Word,
    /// The function or variable at work, for errors.
    pub(super) place: String,
    pub(super) functions: HashMap<Handle<Function>, Word>,
    pub(super) workgroup: HashMap<Handle<GlobalVariable>, Word>,
    /// Words that are constants, with their types.
    pub(super) constants: HashMap<Word, Word>,
    pub(super) scalars: HashMap<(Word, u64), Word>,
    pub(super) composites: HashMap<(Word, Vec<Word>), Word>,
    /// Constant arrays that are indexed at run time, as variables.
    pub(super) tables: HashMap<Word, Word>,
    pub(super) inputs: HashMap<spirv::BuiltIn, Word>,
    capabilities: BTreeSet<Capability>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(module: &'a Module, info: &'a ModuleInfo) -> Self {
        let mut b = Builder::new();
        b.set_version(1, 2);
        for capability in [
            spirv::Capability::Kernel,
            spirv::Capability::Addresses,
            spirv::Capability::Int64,
        ] {
            b.capability(capability);
        }
        let opencl = b.ext_inst_import("OpenCL.std");
        b.memory_model(
            spirv::AddressingModel::Physical64,
            spirv::MemoryModel::OpenCL,
        );
        Writer {
            module,
            info,
            b,
            opencl,
            place: String::new(),
            functions: HashMap::new(),
            workgroup: HashMap::new(),
            constants: HashMap::new(),
            scalars: HashMap::new(),
            composites: HashMap::new(),
            tables: HashMap::new(),
            inputs: HashMap::new(),
            capabilities: BTreeSet::new(),
        }
    }

    /// An error that names `construct`: words as they are, naga's constructs by their variant.
    pub(super) fn refuse(&self, construct: impl std::fmt::Debug, why: &'static str) -> Error {
        let text = format!("{construct:?}");
        let construct = match text
            .strip_prefix('"')
            .and_then(|text| text.strip_suffix('"'))
        {
            Some(words) => words.to_owned(),
            None => text
                .split(['{', '(', '[', ' '])
                .next()
                .unwrap_or_default()
                .to_owned(),
        };
        Error::Unsupported {
            place: self.place.clone(),
            construct,
            why,
        }
    }

    /// An override that nobody has given a value.
    pub(super) fn pending(&self, handle: Handle<Override>) -> Error {
        let pending = &self.module.overrides[handle];
        let number = || {
            pending
                .id
                .map_or_else(String::new, |id| format!("@id({id})"))
        };
        Error::Override {
            name: pending.name.clone().unwrap_or_else(number),
        }
    }

    pub(super) fn builder(&self, error: &rspirv::dr::Error) -> Error {
        Error::Builder {
            place: self.place.clone(),
            message: error.to_string(),
        }
    }

    /// Declares a capability once, with its extension.
    pub(super) fn require(&mut self, capability: Capability) {
        if self.capabilities.insert(capability) {
            for &declaration in capability.declarations() {
                self.b.capability(declaration);
            }
            if let Some(extension) = capability.extension() {
                self.b.extension(extension);
            }
        }
    }

    pub(super) fn kernel(mut self, entry: &str, options: &Options) -> Result<Kernel, Error> {
        let module = self.module;
        let compute = |(_, point): &(usize, &naga::EntryPoint)| point.stage == ShaderStage::Compute;
        let (index, point) = module
            .entry_points
            .iter()
            .enumerate()
            .filter(compute)
            .find(|(_, point)| point.name == entry)
            .ok_or_else(|| Error::NoEntryPoint {
                name: entry.to_owned(),
                found: module
                    .entry_points
                    .iter()
                    .enumerate()
                    .filter(compute)
                    .map(|(_, p)| p.name.clone())
                    .collect(),
            })?;
        let info = self.info.get_entry_point(index);
        let mut globals: Vec<_> = module
            .global_variables
            .iter()
            .filter(|(handle, _)| !info[*handle].is_empty())
            .collect();
        globals.sort_by_key(|(handle, global)| (binding(global), handle.index()));

        let workgroup_bytes = self.workgroup_variables(&globals)?;
        let arguments = self.arguments(&globals)?;
        for handle in reachable(module, &point.function.body) {
            let function = &module.functions[handle];
            let id = self.function(function, &self.info[handle], Kind::Helper)?;
            self.functions.insert(handle, id);
        }
        let kernel = self.function(
            &point.function,
            info,
            Kind::Kernel {
                point,
                arguments: &arguments,
            },
        )?;

        let mut inputs: Vec<Word> = self.inputs.values().copied().collect();
        inputs.sort_unstable();
        self.b
            .entry_point(spirv::ExecutionModel::Kernel, kernel, &*point.name, inputs);
        self.b.execution_mode(
            kernel,
            spirv::ExecutionMode::LocalSize,
            point.workgroup_size,
        );
        self.b
            .execution_mode(kernel, spirv::ExecutionMode::ContractionOff, []);
        if let Some(size) = options.subgroup_size {
            self.require(Capability::SubgroupSize);
            self.b
                .execution_mode(kernel, spirv::ExecutionMode::SubgroupSize, [size]);
        }
        let interface = Interface {
            entry_point: point.name.clone(),
            arguments,
            workgroup_size: point.workgroup_size,
            subgroup_size: options.subgroup_size,
            workgroup_bytes,
            capabilities: self.capabilities.into_iter().collect(),
        };
        Ok(Kernel {
            words: self.b.module().assemble(),
            interface,
        })
    }

    fn workgroup_variables(
        &mut self,
        globals: &[(Handle<GlobalVariable>, &GlobalVariable)],
    ) -> Result<u32, Error> {
        let mut bytes = 0;
        for &(handle, global) in globals
            .iter()
            .filter(|(_, global)| global.space == AddressSpace::WorkGroup)
        {
            self.place = label(global.name.as_deref());
            let pointee = self.type_of(global.ty, Form::Memory)?;
            let ty = self.b.type_pointer(None, StorageClass::Workgroup, pointee);
            let variable = self.b.variable(ty, None, StorageClass::Workgroup, None);
            self.b.name(variable, self.place.clone());
            self.workgroup.insert(handle, variable);
            bytes += self.module.types[global.ty]
                .inner
                .size(self.module.to_ctx())
                .next_multiple_of(16);
        }
        Ok(bytes)
    }

    /// The kernel's arguments in the order of the bindings.
    fn arguments(
        &mut self,
        globals: &[(Handle<GlobalVariable>, &GlobalVariable)],
    ) -> Result<Vec<Argument>, Error> {
        let mut arguments = Vec::new();
        for &(_, global) in globals {
            self.place = label(global.name.as_deref());
            match (global.space, binding(global)) {
                (AddressSpace::Storage { access }, Some(binding)) => {
                    self.check_layout(global.ty)?;
                    let writable = access.contains(StorageAccess::STORE);
                    arguments.push(Argument::Buffer { binding, writable });
                    if let TypeInner::Array {
                        size: ArraySize::Dynamic,
                        stride,
                        ..
                    } = self.module.types[global.ty].inner
                    {
                        arguments.push(Argument::Length { binding, stride });
                    }
                }
                (AddressSpace::Uniform | AddressSpace::Immediate, binding) => {
                    arguments.extend(self.uniform_arguments(binding, global.ty)?);
                }
                (AddressSpace::WorkGroup | AddressSpace::Private, _) => {}
                (other, _) => return Err(self.refuse(other, "a compute kernel has no such memory")),
            }
        }
        Ok(arguments)
    }

    /// The variable that the device fills with `builtin`.
    pub(super) fn input(&mut self, builtin: spirv::BuiltIn, ty: Word) -> Word {
        if let Some(&known) = self.inputs.get(&builtin) {
            return known;
        }
        let pointer = self.b.type_pointer(None, StorageClass::Input, ty);
        let variable = self.b.id();
        // A variable made while a block is selected would land in the block.
        self.b
            .module_mut()
            .types_global_values
            .push(rspirv::dr::Instruction::new(
                spirv::Op::Variable,
                Some(pointer),
                Some(variable),
                vec![Operand::StorageClass(StorageClass::Input)],
            ));
        self.b.decorate(
            variable,
            spirv::Decoration::BuiltIn,
            [Operand::BuiltIn(builtin)],
        );
        self.b.decorate(variable, spirv::Decoration::Constant, []);
        self.inputs.insert(builtin, variable);
        variable
    }

    /// A constant array as a variable, so that it can be indexed at run time.
    pub(super) fn table(&mut self, constant: Word, ty: Word) -> Word {
        if let Some(&known) = self.tables.get(&constant) {
            return known;
        }
        let pointer = self.b.type_pointer(None, StorageClass::UniformConstant, ty);
        let variable = self.b.id();
        self.b
            .module_mut()
            .types_global_values
            .push(rspirv::dr::Instruction::new(
                spirv::Op::Variable,
                Some(pointer),
                Some(variable),
                vec![
                    Operand::StorageClass(StorageClass::UniformConstant),
                    Operand::IdRef(constant),
                ],
            ));
        self.b.decorate(variable, spirv::Decoration::Constant, []);
        self.tables.insert(constant, variable);
        variable
    }
}

pub(super) fn binding(global: &GlobalVariable) -> Option<Binding> {
    global.binding.map(|b| Binding {
        group: b.group,
        binding: b.binding,
    })
}

/// A name for errors and for the module's debug names.
pub(super) fn label(name: Option<&str>) -> String {
    name.unwrap_or("unnamed").to_owned()
}

/// The functions that `body` calls, callees first: naga's arena has that order.
fn reachable(module: &Module, body: &Block) -> Vec<Handle<Function>> {
    fn visit(module: &Module, block: &Block, found: &mut HashSet<Handle<Function>>) {
        for statement in block {
            match *statement {
                Statement::Call { function, .. } if found.insert(function) => {
                    visit(module, &module.functions[function].body, found);
                }
                Statement::Block(ref inner) => visit(module, inner, found),
                Statement::If {
                    ref accept,
                    ref reject,
                    ..
                } => {
                    visit(module, accept, found);
                    visit(module, reject, found);
                }
                Statement::Switch { ref cases, .. } => {
                    cases
                        .iter()
                        .for_each(|case| visit(module, &case.body, found));
                }
                Statement::Loop {
                    ref body,
                    ref continuing,
                    ..
                } => {
                    visit(module, body, found);
                    visit(module, continuing, found);
                }
                _ => {}
            }
        }
    }
    let mut found = HashSet::new();
    visit(module, body, &mut found);
    module
        .functions
        .iter()
        .map(|(handle, _)| handle)
        .filter(|handle| found.contains(handle))
        .collect()
}
