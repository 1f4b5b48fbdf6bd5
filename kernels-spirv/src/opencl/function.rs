//! A function: its parameters, its variables and its body.

use super::{
    error::Error,
    interface::{Argument, Binding},
    types::Form,
    writer::{Writer, binding, label},
};
use naga::{
    AddressSpace, ArraySize, BuiltIn, EntryPoint, Expression, Function, GlobalVariable, Handle,
    LocalVariable, ScalarKind, Type, TypeInner, valid::FunctionInfo,
};
use rspirv::spirv::{self, StorageClass, Word};
use std::collections::HashMap;

/// Whether a function is the entry point.
#[derive(Clone, Copy)]
pub(super) enum Kind<'p> {
    Kernel {
        point: &'p EntryPoint,
        arguments: &'p [Argument],
    },
    Helper,
}

/// A variable outside the function, as the function sees it.
#[derive(Clone, Copy)]
pub(super) struct Global {
    pub(super) pointer: Word,
    pub(super) length: Option<Word>,
}

/// Where `break` and `continue` go.
#[derive(Clone, Copy)]
pub(super) struct Exits {
    pub(super) leave: Word,
    pub(super) again: Option<Word>,
}

/// A function under way.
pub(super) struct Body<'f> {
    pub(super) function: &'f Function,
    pub(super) info: &'f FunctionInfo,
    pub(super) values: HashMap<Handle<Expression>, Word>,
    pub(super) locals: HashMap<Handle<LocalVariable>, Word>,
    pub(super) arguments: Vec<Word>,
    pub(super) globals: HashMap<Handle<GlobalVariable>, Global>,
    pub(super) exits: Vec<Exits>,
}

impl<'a> Writer<'a> {
    /// The variables outside `info`'s function that it has to be handed, in the order of their handing over.
    /// Workgroup variables belong to the module and need no handing.
    pub(super) fn handed(&self, info: &FunctionInfo) -> Vec<Handle<GlobalVariable>> {
        let mut handed: Vec<_> = self
            .module
            .global_variables
            .iter()
            .filter(|(handle, global)| {
                !info[*handle].is_empty() && global.space != AddressSpace::WorkGroup
            })
            .collect();
        handed.sort_by_key(|(handle, global)| (binding(global), handle.index()));
        handed.into_iter().map(|(handle, _)| handle).collect()
    }

    pub(super) fn is_unsized(&self, ty: Handle<Type>) -> bool {
        matches!(
            self.module.types[ty].inner,
            TypeInner::Array {
                size: ArraySize::Dynamic,
                ..
            }
        )
    }

    pub(super) fn function(
        &mut self,
        function: &Function,
        info: &FunctionInfo,
        kind: Kind<'_>,
    ) -> Result<Word, Error> {
        self.place = match kind {
            Kind::Kernel { point, .. } => point.name.clone(),
            Kind::Helper => label(function.name.as_deref()),
        };
        let result = match function.result {
            Some(ref result) => self.type_of(result.ty, Form::Value)?,
            None => self.b.type_void(),
        };
        let handed = self.handed(info);
        let (types, names) = self.parameters(function, &handed, kind)?;
        let ty = self.b.type_function(result, types.clone());
        let id = self
            .b
            .begin_function(result, None, spirv::FunctionControl::NONE, ty)
            .map_err(|e| self.builder(&e))?;
        self.b.name(id, self.place.clone());
        let mut parameters = Vec::with_capacity(types.len());
        for (ty, name) in types.into_iter().zip(names) {
            let parameter = self
                .b
                .function_parameter(ty)
                .map_err(|e| self.builder(&e))?;
            self.b.name(parameter, name);
            parameters.push(parameter);
        }
        self.b.begin_block(None).map_err(|e| self.builder(&e))?;
        let mut body = Body {
            function,
            info,
            values: HashMap::new(),
            locals: HashMap::new(),
            arguments: Vec::new(),
            globals: HashMap::new(),
            exits: Vec::new(),
        };
        self.locals(&mut body)?;
        let mut parameters = parameters.into_iter();
        match kind {
            Kind::Helper => {
                body.arguments = parameters.by_ref().take(function.arguments.len()).collect();
                for handle in handed {
                    let ty = self.module.global_variables[handle].ty;
                    let pointer = parameters.next().expect("`parameters` gave one for each");
                    let length = if self.is_unsized(ty) {
                        parameters.next()
                    } else {
                        None
                    };
                    body.globals.insert(handle, Global { pointer, length });
                }
            }
            Kind::Kernel { point, .. } => {
                self.kernel_globals(&mut body, &handed, &mut parameters)?;
                for argument in &function.arguments {
                    let value = self.builtin_argument(argument.ty, argument.binding.as_ref())?;
                    body.arguments.push(value);
                }
            }
        }
        self.initialise(&mut body)?;
        self.block(&mut body, &function.body)?;
        if self.b.selected_block().is_some() {
            match function.result {
                None => self.b.ret(),
                Some(_) => self.b.unreachable(),
            }
            .map_err(|e| self.builder(&e))?;
        }
        self.b.end_function().map_err(|e| self.builder(&e))?;
        Ok(id)
    }

    /// Types and names of the SPIR-V parameters.
    fn parameters(
        &mut self,
        function: &Function,
        handed: &[Handle<GlobalVariable>],
        kind: Kind<'_>,
    ) -> Result<(Vec<Word>, Vec<String>), Error> {
        let (mut types, mut names) = (Vec::new(), Vec::new());
        if let Kind::Kernel { arguments, .. } = kind {
            for argument in arguments {
                let (ty, name) = self.kernel_parameter(handed, argument)?;
                types.push(ty);
                names.push(name);
            }
            return Ok((types, names));
        }
        for argument in &function.arguments {
            types.push(self.type_of(argument.ty, Form::Value)?);
            names.push(label(argument.name.as_deref()));
        }
        for &handle in handed {
            let global = &self.module.global_variables[handle];
            let (class, pointee) = (self.class(global.space)?, self.pointee(global.ty)?);
            types.push(self.b.type_pointer(None, class, pointee));
            names.push(label(global.name.as_deref()));
            if self.is_unsized(global.ty) {
                types.push(self.u32());
                names.push(format!("{}_length", label(global.name.as_deref())));
            }
        }
        Ok((types, names))
    }

    fn kernel_parameter(
        &mut self,
        handed: &[Handle<GlobalVariable>],
        argument: &Argument,
    ) -> Result<(Word, String), Error> {
        let module = self.module;
        let of = |wanted: Option<Binding>| {
            let found = handed
                .iter()
                .map(|&handle| &module.global_variables[handle])
                .find(|global| binding(global) == wanted && global.space != AddressSpace::Private);
            found.expect("arguments are made from the same variables")
        };
        match *argument {
            Argument::Buffer { binding, .. } => {
                let global = of(Some(binding));
                let pointee = self.pointee(global.ty)?;
                let ty = self
                    .b
                    .type_pointer(None, StorageClass::CrossWorkgroup, pointee);
                Ok((ty, label(global.name.as_deref())))
            }
            Argument::Length { binding, .. } => Ok((
                self.u32(),
                format!("{}_length", label(of(Some(binding)).name.as_deref())),
            )),
            Argument::Value { binding, offset } => {
                let global = of(binding);
                let mut leaves = Vec::new();
                self.leaves(global.ty, 0, &mut leaves)?;
                let (_, scalar) = leaves
                    .into_iter()
                    .find(|leaf| leaf.0 == offset)
                    .expect("made from the leaves");
                let ty = self.scalar(scalar, Form::Memory)?;
                Ok((ty, format!("{}_{offset}", label(global.name.as_deref()))))
            }
        }
    }

    /// Declares the function's variables; SPIR-V wants them before anything else.
    fn locals(&mut self, body: &mut Body<'_>) -> Result<(), Error> {
        for (handle, local) in body.function.local_variables.iter() {
            let variable = self.private(local.ty, local.name.as_deref())?;
            body.locals.insert(handle, variable);
        }
        Ok(())
    }

    fn private(&mut self, ty: Handle<Type>, name: Option<&str>) -> Result<Word, Error> {
        let pointee = self.type_of(ty, Form::Memory)?;
        let pointer = self.b.type_pointer(None, StorageClass::Function, pointee);
        let variable = self.b.variable(pointer, None, StorageClass::Function, None);
        self.b.name(variable, label(name));
        Ok(variable)
    }

    fn kernel_globals(
        &mut self,
        body: &mut Body<'_>,
        handed: &[Handle<GlobalVariable>],
        parameters: &mut impl Iterator<Item = Word>,
    ) -> Result<(), Error> {
        let mut stores = Vec::new();
        for &handle in handed {
            let global = &self.module.global_variables[handle];
            let bound = match global.space {
                AddressSpace::Storage { .. } => {
                    let pointer = parameters
                        .next()
                        .expect("`arguments` has a pointer for each buffer");
                    let length = if self.is_unsized(global.ty) {
                        parameters.next()
                    } else {
                        None
                    };
                    Global { pointer, length }
                }
                _ => {
                    let pointer = self.private(global.ty, global.name.as_deref())?;
                    let mut leaves = Vec::new();
                    if global.space != AddressSpace::Private {
                        self.leaves(global.ty, 0, &mut leaves)?;
                    }
                    let values: Vec<Word> = parameters.by_ref().take(leaves.len()).collect();
                    stores.push((pointer, global, values));
                    Global {
                        pointer,
                        length: None,
                    }
                }
            };
            body.globals.insert(handle, bound);
        }
        for (pointer, global, values) in stores {
            let value = match (global.space, global.init) {
                (AddressSpace::Private, Some(init)) if !self.holds_bool(global.ty) => {
                    self.global_expression(init)?
                }
                (AddressSpace::Private, Some(_)) => {
                    return Err(self.refuse(
                        global.space,
                        "a private variable with a bool starts as false",
                    ));
                }
                (AddressSpace::Private, None) => {
                    let ty = self.type_of(global.ty, Form::Memory)?;
                    self.constant_null(ty)
                }
                _ => self.assemble(global.ty, &mut values.into_iter())?,
            };
            self.b
                .store(pointer, value, None, [])
                .map_err(|e| self.builder(&e))?;
        }
        Ok(())
    }

    /// An argument of the entry point: a builtin, or a struct of them.
    fn builtin_argument(
        &mut self,
        ty: Handle<Type>,
        binding: Option<&naga::Binding>,
    ) -> Result<Word, Error> {
        let module = self.module;
        match (binding, &module.types[ty].inner) {
            (Some(&naga::Binding::BuiltIn(builtin)), _) => self.builtin(builtin),
            (None, TypeInner::Struct { members, .. }) => {
                let parts = members
                    .iter()
                    .map(|member| self.builtin_argument(member.ty, member.binding.as_ref()))
                    .collect::<Result<_, _>>()?;
                let ty = self.type_of(ty, Form::Value)?;
                self.composite(ty, parts)
            }
            (other, _) => Err(self.refuse(other, "a kernel's inputs are builtins")),
        }
    }

    fn builtin(&mut self, builtin: BuiltIn) -> Result<Word, Error> {
        use spirv::BuiltIn as B;
        let (u32, u64) = (self.u32(), self.u64());
        let (u32x3, u64x3) = (self.b.type_vector(u32, 3), self.b.type_vector(u64, 3));
        let (name, wide, narrow) = match builtin {
            BuiltIn::GlobalInvocationId => (B::GlobalInvocationId, u64x3, u32x3),
            BuiltIn::LocalInvocationId => (B::LocalInvocationId, u64x3, u32x3),
            BuiltIn::WorkGroupId => (B::WorkgroupId, u64x3, u32x3),
            BuiltIn::NumWorkGroups => (B::NumWorkgroups, u64x3, u32x3),
            BuiltIn::LocalInvocationIndex => (B::LocalInvocationIndex, u64, u32),
            BuiltIn::SubgroupSize => (B::SubgroupSize, u32, u32),
            BuiltIn::NumSubgroups => (B::NumSubgroups, u32, u32),
            BuiltIn::SubgroupId => (B::SubgroupId, u32, u32),
            BuiltIn::SubgroupInvocationId => (B::SubgroupLocalInvocationId, u32, u32),
            other => return Err(self.refuse(other, "OpenCL has no such builtin in a kernel")),
        };
        let variable = self.input(name, wide);
        let value = self
            .b
            .load(wide, None, variable, None, [])
            .map_err(|e| self.builder(&e))?;
        if wide == narrow {
            return Ok(value);
        }
        self.b
            .u_convert(narrow, None, value)
            .map_err(|e| self.builder(&e))
    }

    /// Gives every local variable its first value: WGSL's default is zero.
    fn initialise(&mut self, body: &mut Body<'_>) -> Result<(), Error> {
        for (handle, local) in body.function.local_variables.iter() {
            let pointer = body.locals[&handle];
            match local.init {
                Some(init) => {
                    let value = self.value(body, init)?;
                    self.store_value(body, pointer, init, value)?;
                }
                None => {
                    let ty = self.type_of(local.ty, Form::Memory)?;
                    let zero = self.constant_null(ty);
                    self.b
                        .store(pointer, zero, None, [])
                        .map_err(|e| self.builder(&e))?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn holds_bool(&self, ty: Handle<Type>) -> bool {
        match self.module.types[ty].inner {
            TypeInner::Array { base, .. } => self.holds_bool(base),
            TypeInner::Struct { ref members, .. } => {
                members.iter().any(|member| self.holds_bool(member.ty))
            }
            ref inner => inner.scalar_kind() == Some(ScalarKind::Bool),
        }
    }
}
