//! Atomics on integers, relaxed as WGSL's are.

use super::{error::Error, function::Body, interface::Capability, types::Form, writer::Writer};
use naga::{
    AddressSpace, AtomicFunction as F, Expression, Handle, Scalar, ScalarKind as K, TypeInner,
};
use rspirv::spirv::{MemorySemantics, Scope, Word};

impl Writer<'_> {
    /// Scope and semantics for the memory that `pointer` points to.
    fn atomic_operands(
        &mut self,
        pointer: &TypeInner,
        scalar: Scalar,
    ) -> Result<(Word, Word), Error> {
        match (scalar.kind, scalar.width) {
            (K::Sint | K::Uint, 4) => {}
            (K::Sint | K::Uint, 8) => self.require(Capability::Int64Atomics),
            _ => return Err(self.refuse("Atomic of floats", "sums of floats have one order")),
        }
        let scope = match pointer.pointer_space() {
            Some(AddressSpace::WorkGroup) => Scope::Workgroup,
            _ => Scope::Device,
        };
        Ok((
            self.constant_u32(scope as u32),
            self.constant_u32(MemorySemantics::RELAXED.bits()),
        ))
    }

    fn atomic_scalar(&self, inner: &TypeInner) -> Result<Scalar, Error> {
        match *inner {
            TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) => Ok(scalar),
            ref other => Err(self.refuse(other, "atomics are integers")),
        }
    }

    pub(super) fn atomic_load(
        &mut self,
        pointer: &TypeInner,
        inner: &TypeInner,
        place: Word,
    ) -> Result<Word, Error> {
        let scalar = self.atomic_scalar(inner)?;
        let (scope, relaxed) = self.atomic_operands(pointer, scalar)?;
        let ty = self.scalar(scalar, Form::Value)?;
        self.b
            .atomic_load(ty, None, place, scope, relaxed)
            .map_err(|e| self.builder(&e))
    }

    pub(super) fn atomic_store(
        &mut self,
        pointer: &TypeInner,
        place: Word,
        value: Word,
    ) -> Result<(), Error> {
        let TypeInner::Pointer { base, .. } = *pointer else {
            return Err(self.refuse(pointer, "an atomic is reached through its variable"));
        };
        let scalar = self.atomic_scalar(&self.module.types[base].inner)?;
        let (scope, relaxed) = self.atomic_operands(pointer, scalar)?;
        self.b
            .atomic_store(place, scope, relaxed, value)
            .map_err(|e| self.builder(&e))
    }

    pub(super) fn atomic(
        &mut self,
        body: &mut Body<'_>,
        pointer: Handle<Expression>,
        function: F,
        operand: Handle<Expression>,
        result: Option<Handle<Expression>>,
    ) -> Result<(), Error> {
        let target = self.inner_of(body, pointer);
        let shape = self.inner_of(body, operand);
        let scalar = self.atomic_scalar(&shape)?;
        let signed = scalar.kind == K::Sint;
        let (place, value) = (self.value(body, pointer)?, self.value(body, operand)?);
        let (scope, relaxed) = self.atomic_operands(&target, scalar)?;
        let ty = self.scalar(scalar, Form::Value)?;
        if let F::Exchange {
            compare: Some(compare),
        } = function
        {
            let compare = self.value(body, compare)?;
            let old = self
                .b
                .atomic_compare_exchange(ty, None, place, scope, relaxed, relaxed, value, compare)
                .map_err(|e| self.builder(&e))?;
            let Some(result) = result else { return Ok(()) };
            let bool = self.bool();
            let exchanged = self
                .b
                .i_equal(bool, None, old, compare)
                .map_err(|e| self.builder(&e))?;
            let both = self.type_word(body, result)?;
            let word = self.composite(both, vec![old, exchanged])?;
            body.values.insert(result, word);
            return Ok(());
        }
        let b = &mut self.b;
        let word = match function {
            F::Add => b.atomic_i_add(ty, None, place, scope, relaxed, value),
            F::Subtract => b.atomic_i_sub(ty, None, place, scope, relaxed, value),
            F::And => b.atomic_and(ty, None, place, scope, relaxed, value),
            F::InclusiveOr => b.atomic_or(ty, None, place, scope, relaxed, value),
            F::ExclusiveOr => b.atomic_xor(ty, None, place, scope, relaxed, value),
            F::Min if signed => b.atomic_s_min(ty, None, place, scope, relaxed, value),
            F::Min => b.atomic_u_min(ty, None, place, scope, relaxed, value),
            F::Max if signed => b.atomic_s_max(ty, None, place, scope, relaxed, value),
            F::Max => b.atomic_u_max(ty, None, place, scope, relaxed, value),
            F::Exchange { .. } => b.atomic_exchange(ty, None, place, scope, relaxed, value),
        }
        .map_err(|e| self.builder(&e))?;
        if let Some(result) = result {
            body.values.insert(result, word);
        }
        Ok(())
    }
}
