//! Expressions that compute no number of their own: constants, variables, composites and their parts.

use super::{error::Error, function::Body, types::Form, writer::Writer};
use naga::{Expression, Handle, RelationalFunction, ScalarKind, TypeInner, VectorSize};
use rspirv::spirv::{StorageClass, Word};

impl Writer<'_> {
    /// naga's type of an expression.
    pub(super) fn inner_of(&self, body: &Body<'_>, handle: Handle<Expression>) -> TypeInner {
        body.info[handle].ty.inner_with(&self.module.types).clone()
    }

    /// The SPIR-V type of an expression's value.
    pub(super) fn type_word(
        &mut self,
        body: &Body<'_>,
        handle: Handle<Expression>,
    ) -> Result<Word, Error> {
        let inner = self.inner_of(body, handle);
        self.inner(&inner, Form::Value)
    }

    /// The value of an expression, computed here if it has none yet.
    pub(super) fn value(
        &mut self,
        body: &mut Body<'_>,
        handle: Handle<Expression>,
    ) -> Result<Word, Error> {
        if let Some(&known) = body.values.get(&handle) {
            return Ok(known);
        }
        let word = self.expression(body, handle)?;
        body.values.insert(handle, word);
        Ok(word)
    }

    fn expression(
        &mut self,
        body: &mut Body<'_>,
        handle: Handle<Expression>,
    ) -> Result<Word, Error> {
        let function = body.function;
        match function.expressions[handle] {
            Expression::Literal(literal) => self.literal(literal),
            Expression::Constant(constant) => {
                self.global_expression(self.module.constants[constant].init)
            }
            Expression::ZeroValue(ty) => {
                let ty = self.type_of(ty, Form::Value)?;
                Ok(self.constant_null(ty))
            }
            Expression::FunctionArgument(index) => Ok(body.arguments[index as usize]),
            Expression::LocalVariable(local) => Ok(body.locals[&local]),
            Expression::GlobalVariable(global) => Ok(match self.workgroup.get(&global) {
                Some(&variable) => variable,
                None => body.globals[&global].pointer,
            }),
            Expression::Compose { ref components, .. } => self.compose(body, handle, components),
            Expression::Splat { size, value } => {
                let (ty, value) = (self.type_word(body, handle)?, self.value(body, value)?);
                self.composite(ty, vec![value; size as usize])
            }
            Expression::Swizzle {
                size,
                vector,
                pattern,
            } => {
                let (ty, vector) = (self.type_word(body, handle)?, self.value(body, vector)?);
                let components: Vec<u32> =
                    pattern[..size as usize].iter().map(|&c| c as u32).collect();
                self.b
                    .vector_shuffle(ty, None, vector, vector, components)
                    .map_err(|e| self.builder(&e))
            }
            Expression::Access { base, index } => self.access(body, handle, base, index),
            Expression::AccessIndex { base, index } => self.access_index(body, handle, base, index),
            Expression::Load { pointer } => self.load(body, handle, pointer),
            Expression::Unary { op, expr } => self.unary(body, handle, op, expr),
            Expression::Binary { op, left, right } => self.binary(body, handle, op, left, right),
            Expression::Select {
                condition,
                accept,
                reject,
            } => {
                let ty = self.type_word(body, handle)?;
                let mut test = self.value(body, condition)?;
                let (accept, reject) = (self.value(body, accept)?, self.value(body, reject)?);
                // Before SPIR-V 1.4 a vector is selected by a vector.
                if let (TypeInner::Vector { size, .. }, TypeInner::Scalar(_)) =
                    (self.inner_of(body, handle), self.inner_of(body, condition))
                {
                    test = self.splat(test, size)?;
                }
                self.b
                    .select(ty, None, test, accept, reject)
                    .map_err(|e| self.builder(&e))
            }
            Expression::Relational { fun, argument } => {
                let (ty, vector) = (self.type_word(body, handle)?, self.value(body, argument)?);
                match fun {
                    RelationalFunction::All => self.b.all(ty, None, vector),
                    RelationalFunction::Any => self.b.any(ty, None, vector),
                    other => {
                        return Err(self.refuse(
                            other,
                            "a driver may assume that there is no NaN: test the bits",
                        ));
                    }
                }
                .map_err(|e| self.builder(&e))
            }
            Expression::Math {
                fun,
                arg,
                arg1,
                arg2,
                arg3,
            } => {
                let arguments = [Some(arg), arg1, arg2, arg3];
                let arguments: Vec<_> = arguments.into_iter().flatten().collect();
                self.math(body, handle, fun, &arguments)
            }
            Expression::As {
                expr,
                kind,
                convert,
            } => self.convert(body, handle, expr, kind, convert),
            Expression::ArrayLength(array) => match function.expressions[array] {
                Expression::GlobalVariable(global) => {
                    match body.globals.get(&global).and_then(|g| g.length) {
                        Some(length) => Ok(length),
                        None => {
                            Err(self
                                .refuse("ArrayLength", "only whole buffers have a length argument"))
                        }
                    }
                }
                _ => Err(self.refuse(
                    "ArrayLength",
                    "name the buffer: a pointer to it carries no length",
                )),
            },
            Expression::Override(pending) => Err(self.pending(pending)),
            ref other => Err(self.refuse(other, "it has no OpenCL form that the contract uses")),
        }
    }

    /// A composite; vectors made of vectors are taken apart first, which every consumer understands.
    fn compose(
        &mut self,
        body: &mut Body<'_>,
        handle: Handle<Expression>,
        components: &[Handle<Expression>],
    ) -> Result<Word, Error> {
        let ty = self.type_word(body, handle)?;
        let target = self.inner_of(body, handle);
        let mut parts = Vec::new();
        for &component in components {
            let value = self.value(body, component)?;
            match (&target, self.inner_of(body, component)) {
                (TypeInner::Vector { .. }, TypeInner::Vector { size, scalar }) => {
                    let element = self.scalar(scalar, Form::Value)?;
                    for index in 0..size as u32 {
                        let part = self.b.composite_extract(element, None, value, [index]);
                        parts.push(part.map_err(|e| self.builder(&e))?);
                    }
                }
                _ => parts.push(value),
            }
        }
        self.composite(ty, parts)
    }

    pub(super) fn splat(&mut self, value: Word, size: VectorSize) -> Result<Word, Error> {
        let component = match self.constants.get(&value) {
            Some(&ty) => ty,
            None => self.bool(),
        };
        let ty = self.b.type_vector(component, size as u32);
        self.composite(ty, vec![value; size as usize])
    }

    /// `constant` as wide as `shape` is.
    pub(super) fn shaped(&mut self, constant: Word, shape: &TypeInner) -> Result<Word, Error> {
        match *shape {
            TypeInner::Vector { size, .. } => self.splat(constant, size),
            _ => Ok(constant),
        }
    }

    /// Booleans in the shape of `shape`.
    pub(super) fn bool_like(&mut self, shape: &TypeInner) -> Word {
        let bool = self.bool();
        match *shape {
            TypeInner::Vector { size, .. } => self.b.type_vector(bool, size as u32),
            _ => bool,
        }
    }

    /// A part at a place known only at run time.
    fn access(
        &mut self,
        body: &mut Body<'_>,
        handle: Handle<Expression>,
        base: Handle<Expression>,
        index: Handle<Expression>,
    ) -> Result<Word, Error> {
        let shape = self.inner_of(body, base);
        let (value, index) = (self.value(body, base)?, self.value(body, index)?);
        let ty = self.type_word(body, handle)?;
        let pointer = match shape {
            TypeInner::Pointer { .. } | TypeInner::ValuePointer { .. } => {
                let wide = self.u64();
                let index = self
                    .b
                    .u_convert(wide, None, index)
                    .map_err(|e| self.builder(&e))?;
                return self.part(&shape, ty, value, index);
            }
            TypeInner::Vector { .. } => {
                return self
                    .b
                    .vector_extract_dynamic(ty, None, value, index)
                    .map_err(|e| self.builder(&e));
            }
            _ => match self.constants.get(&value) {
                Some(&array) if !self.holds_bool_inner(&shape) => self.table(value, array),
                _ => {
                    return Err(self.refuse(
                        "Access",
                        "an array value is indexed through a `var` or a `const`",
                    ));
                }
            },
        };
        let element = self.b.type_pointer(None, StorageClass::UniformConstant, ty);
        let place = self
            .b
            .in_bounds_access_chain(element, None, pointer, [index])
            .map_err(|e| self.builder(&e))?;
        self.b
            .load(ty, None, place, None, [])
            .map_err(|e| self.builder(&e))
    }

    fn holds_bool_inner(&self, inner: &TypeInner) -> bool {
        match *inner {
            TypeInner::Array { base, .. } => self.holds_bool(base),
            _ => inner.scalar_kind() == Some(ScalarKind::Bool),
        }
    }

    fn access_index(
        &mut self,
        body: &mut Body<'_>,
        handle: Handle<Expression>,
        base: Handle<Expression>,
        index: u32,
    ) -> Result<Word, Error> {
        let shape = self.inner_of(body, base);
        let value = self.value(body, base)?;
        let ty = self.type_word(body, handle)?;
        match shape {
            TypeInner::Pointer { .. } | TypeInner::ValuePointer { .. } => {
                let index = self.constant_u32(index);
                self.part(&shape, ty, value, index)
            }
            _ => self
                .b
                .composite_extract(ty, None, value, [index])
                .map_err(|e| self.builder(&e)),
        }
    }

    /// A pointer into what `pointer` points to.
    fn part(
        &mut self,
        shape: &TypeInner,
        ty: Word,
        pointer: Word,
        index: Word,
    ) -> Result<Word, Error> {
        match *shape {
            TypeInner::Pointer { base, .. } if self.is_unsized(base) => self
                .b
                .in_bounds_ptr_access_chain(ty, None, pointer, index, []),
            _ => self.b.in_bounds_access_chain(ty, None, pointer, [index]),
        }
        .map_err(|e| self.builder(&e))
    }
}
