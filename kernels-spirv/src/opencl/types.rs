//! naga's types as SPIR-V types, and constants.

use super::{error::Error, writer::Writer};
use naga::proc::IndexableLength;
use naga::{
    AddressSpace, ArraySize, Expression, Handle, Literal, Scalar, ScalarKind, Type, TypeInner,
};
use rspirv::spirv::{StorageClass, Word};

/// A `bool` has no size, so a variable holds a `u32` in its place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Value,
    Memory,
}

impl Writer<'_> {
    pub(super) fn u32(&mut self) -> Word {
        self.b.type_int(32, 0)
    }

    pub(super) fn u64(&mut self) -> Word {
        self.b.type_int(64, 0)
    }

    pub(super) fn bool(&mut self) -> Word {
        self.b.type_bool()
    }

    pub(super) fn scalar(&mut self, scalar: Scalar, form: Form) -> Result<Word, Error> {
        let bits = u32::from(scalar.width) * 8;
        match (scalar.kind, scalar.width) {
            (ScalarKind::Bool, _) if form == Form::Memory => Ok(self.u32()),
            (ScalarKind::Bool, _) => Ok(self.bool()),
            (ScalarKind::Float, 4) => Ok(self.b.type_float(bits, None)),
            (ScalarKind::Sint | ScalarKind::Uint, 4 | 8) => Ok(self.b.type_int(bits, 0)),
            _ => Err(self.refuse(scalar, "numbers are f32, or integers of 32 or 64 bits")),
        }
    }

    pub(super) fn type_of(&mut self, ty: Handle<Type>, form: Form) -> Result<Word, Error> {
        let module = self.module;
        self.inner(&module.types[ty].inner, form)
    }

    pub(super) fn inner(&mut self, inner: &TypeInner, form: Form) -> Result<Word, Error> {
        match *inner {
            TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) => self.scalar(scalar, form),
            TypeInner::Vector { size, scalar } => {
                let component = self.scalar(scalar, form)?;
                Ok(self.b.type_vector(component, size as u32))
            }
            TypeInner::Array { base, size, .. } => {
                let element = self.type_of(base, form)?;
                let count = self.count(size)?;
                let count = self.constant_u32(count);
                Ok(self.b.type_array(element, count))
            }
            TypeInner::Struct { ref members, .. } => {
                let members = members
                    .iter()
                    .map(|member| self.type_of(member.ty, form))
                    .collect::<Result<Vec<_>, _>>()?;
                Ok(self.b.type_struct(members))
            }
            TypeInner::Pointer { base, space } => {
                let class = self.class(space)?;
                let pointee = self.pointee(base)?;
                Ok(self.b.type_pointer(None, class, pointee))
            }
            TypeInner::ValuePointer {
                size,
                scalar,
                space,
            } => {
                let class = self.class(space)?;
                let component = self.scalar(scalar, Form::Memory)?;
                let pointee = match size {
                    Some(size) => self.b.type_vector(component, size as u32),
                    None => component,
                };
                Ok(self.b.type_pointer(None, class, pointee))
            }
            ref other => {
                Err(self.refuse(other, "the type has no OpenCL form that the contract uses"))
            }
        }
    }

    /// The length of an array whose size may have been an override.
    pub(super) fn count(&self, size: ArraySize) -> Result<u32, Error> {
        match (size.resolve(self.module.to_ctx()), size) {
            (Ok(IndexableLength::Known(count)), _) => Ok(count),
            (_, ArraySize::Pending(pending)) => Err(self.pending(pending)),
            _ => Err(self.refuse(size, "an array without length is a buffer of its own")),
        }
    }

    /// What a pointer to `ty` points to: for an array without length that is its first element.
    pub(super) fn pointee(&mut self, ty: Handle<Type>) -> Result<Word, Error> {
        match self.module.types[ty].inner {
            TypeInner::Array {
                base,
                size: ArraySize::Dynamic,
                ..
            } => self.type_of(base, Form::Memory),
            _ => self.type_of(ty, Form::Memory),
        }
    }

    /// Uniforms are unpacked into a variable of the kernel, so their pointers are private.
    pub(super) fn class(&self, space: AddressSpace) -> Result<StorageClass, Error> {
        match space {
            AddressSpace::Function
            | AddressSpace::Private
            | AddressSpace::Uniform
            | AddressSpace::Immediate => Ok(StorageClass::Function),
            AddressSpace::WorkGroup => Ok(StorageClass::Workgroup),
            AddressSpace::Storage { .. } => Ok(StorageClass::CrossWorkgroup),
            other => Err(self.refuse(other, "a compute kernel has no such memory")),
        }
    }

    pub(super) fn constant_u32(&mut self, bits: u32) -> Word {
        let ty = self.u32();
        self.constant_bits(ty, bits)
    }

    /// A constant of a 32-bit type.
    pub(super) fn constant_bits(&mut self, ty: Word, bits: u32) -> Word {
        if let Some(&known) = self.scalars.get(&(ty, u64::from(bits))) {
            return known;
        }
        let word = self.b.constant_bit32(ty, bits);
        self.scalars.insert((ty, u64::from(bits)), word);
        self.constants.insert(word, ty);
        word
    }

    pub(super) fn constant_u64(&mut self, bits: u64) -> Word {
        let ty = self.u64();
        if let Some(&known) = self.scalars.get(&(ty, bits)) {
            return known;
        }
        let word = self.b.constant_bit64(ty, bits);
        self.scalars.insert((ty, bits), word);
        self.constants.insert(word, ty);
        word
    }

    /// An integer constant of the scalar's width, sign-extended.
    pub(super) fn constant_int(&mut self, scalar: Scalar, value: i64) -> Word {
        match scalar.width {
            8 => self.constant_u64(value as u64),
            _ => self.constant_u32(value as u32),
        }
    }

    pub(super) fn constant_null(&mut self, ty: Word) -> Word {
        let word = self.b.constant_null(ty);
        self.constants.insert(word, ty);
        word
    }

    /// A composite of `parts`, as a constant where they are constants.
    pub(super) fn composite(&mut self, ty: Word, parts: Vec<Word>) -> Result<Word, Error> {
        if !parts.iter().all(|part| self.constants.contains_key(part)) {
            return self
                .b
                .composite_construct(ty, None, parts)
                .map_err(|e| self.builder(&e));
        }
        if let Some(&known) = self.composites.get(&(ty, parts.clone())) {
            return Ok(known);
        }
        let word = self.b.constant_composite(ty, parts.clone());
        self.composites.insert((ty, parts), word);
        self.constants.insert(word, ty);
        Ok(word)
    }

    pub(super) fn literal(&mut self, literal: Literal) -> Result<Word, Error> {
        match literal {
            Literal::U32(value) => Ok(self.constant_u32(value)),
            Literal::I32(value) => Ok(self.constant_u32(value as u32)),
            Literal::U64(value) => Ok(self.constant_u64(value)),
            Literal::I64(value) => Ok(self.constant_u64(value as u64)),
            Literal::F32(value) => {
                let ty = self.b.type_float(32, None);
                Ok(self.constant_bits(ty, value.to_bits()))
            }
            Literal::Bool(value) => {
                let ty = self.bool();
                let word = if value {
                    self.b.constant_true(ty)
                } else {
                    self.b.constant_false(ty)
                };
                self.constants.insert(word, ty);
                Ok(word)
            }
            other => Err(self.refuse(other, "numbers are f32, or integers of 32 or 64 bits")),
        }
    }

    /// A module-level constant expression.
    pub(super) fn global_expression(&mut self, handle: Handle<Expression>) -> Result<Word, Error> {
        let module = self.module;
        match module.global_expressions[handle] {
            Expression::Literal(literal) => self.literal(literal),
            Expression::Constant(constant) => {
                self.global_expression(module.constants[constant].init)
            }
            Expression::ZeroValue(ty) => {
                let ty = self.type_of(ty, Form::Value)?;
                Ok(self.constant_null(ty))
            }
            Expression::Compose { ty, ref components } => {
                let parts = components
                    .iter()
                    .map(|&part| self.global_expression(part))
                    .collect::<Result<_, _>>()?;
                let ty = self.type_of(ty, Form::Value)?;
                self.composite(ty, parts)
            }
            Expression::Splat { size, value } => {
                let part = self.global_expression(value)?;
                let component = self.constants[&part];
                let ty = self.b.type_vector(component, size as u32);
                self.composite(ty, vec![part; size as usize])
            }
            Expression::Override(pending) => Err(self.pending(pending)),
            ref other => Err(self.refuse(other, "a constant is made of literals")),
        }
    }
}
