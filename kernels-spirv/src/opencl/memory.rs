//! Loads and stores, with booleans as integers and atomics as atomics.

use super::{error::Error, function::Body, types::Form, writer::Writer};
use naga::{Expression, Handle, ScalarKind, TypeInner};
use rspirv::spirv::Word;

impl Writer<'_> {
    pub(super) fn load(
        &mut self,
        body: &mut Body<'_>,
        handle: Handle<Expression>,
        pointer: Handle<Expression>,
    ) -> Result<Word, Error> {
        let target = self.inner_of(body, pointer);
        let inner = self.inner_of(body, handle);
        let place = self.value(body, pointer)?;
        if target.is_atomic_pointer(&self.module.types) {
            return self.atomic_load(&target, &inner, place);
        }
        self.no_bool_inside(body, handle)?;
        let memory = self.inner(&inner, Form::Memory)?;
        let value = self
            .b
            .load(memory, None, place, None, [])
            .map_err(|e| self.builder(&e))?;
        if inner.scalar_kind() != Some(ScalarKind::Bool) {
            return Ok(value);
        }
        let ty = self.inner(&inner, Form::Value)?;
        let zero = self.constant_null(memory);
        self.b
            .i_not_equal(ty, None, value, zero)
            .map_err(|e| self.builder(&e))
    }

    pub(super) fn store(
        &mut self,
        body: &mut Body<'_>,
        pointer: Handle<Expression>,
        value: Handle<Expression>,
    ) -> Result<(), Error> {
        let target = self.inner_of(body, pointer);
        let place = self.value(body, pointer)?;
        let word = self.value(body, value)?;
        if target.is_atomic_pointer(&self.module.types) {
            return self.atomic_store(&target, place, word);
        }
        self.store_value(body, place, value, word)
    }

    /// Stores `word`, the value of `handle`, at `place`.
    pub(super) fn store_value(
        &mut self,
        body: &Body<'_>,
        place: Word,
        handle: Handle<Expression>,
        mut word: Word,
    ) -> Result<(), Error> {
        let inner = self.inner_of(body, handle);
        self.no_bool_inside(body, handle)?;
        if inner.scalar_kind() == Some(ScalarKind::Bool) {
            let one = self.constant_u32(1);
            let one = self.shaped(one, &inner)?;
            let memory = self.inner(&inner, Form::Memory)?;
            let zero = self.constant_null(memory);
            word = self
                .b
                .select(memory, None, word, one, zero)
                .map_err(|e| self.builder(&e))?;
        }
        self.b
            .store(place, word, None, [])
            .map_err(|e| self.builder(&e))
    }

    /// A composite with a `bool` differs in memory, so it is moved member by member or not at all.
    fn no_bool_inside(&self, body: &Body<'_>, handle: Handle<Expression>) -> Result<(), Error> {
        let inside = match self.inner_of(body, handle) {
            TypeInner::Array { base, .. } => self.holds_bool(base),
            TypeInner::Struct { ref members, .. } => {
                members.iter().any(|member| self.holds_bool(member.ty))
            }
            _ => false,
        };
        match inside {
            true => Err(self.refuse(
                "bool",
                "a composite with a bool cannot be loaded or stored whole: use u32",
            )),
            false => Ok(()),
        }
    }
}
