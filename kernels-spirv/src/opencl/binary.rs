//! Operators.

use super::{error::Error, function::Body, writer::Writer};
use naga::{BinaryOperator as Op, Expression, Handle, ScalarKind as K, TypeInner, UnaryOperator};
use rspirv::spirv::Word;

impl Writer<'_> {
    pub(super) fn unary(
        &mut self,
        body: &mut Body<'_>,
        handle: Handle<Expression>,
        op: UnaryOperator,
        operand: Handle<Expression>,
    ) -> Result<Word, Error> {
        let ty = self.type_word(body, handle)?;
        let shape = self.inner_of(body, operand);
        let value = self.value(body, operand)?;
        match op {
            UnaryOperator::Negate if shape.scalar_kind() == Some(K::Float) => {
                self.b.f_negate(ty, None, value)
            }
            UnaryOperator::Negate => self.b.s_negate(ty, None, value),
            UnaryOperator::BitwiseNot => self.b.not(ty, None, value),
            // Intel's compiler of 2022 fails on OpLogicalNot.
            UnaryOperator::LogicalNot => {
                let no = self.constant_null(ty);
                self.b.logical_equal(ty, None, value, no)
            }
        }
        .map_err(|e| self.builder(&e))
    }

    pub(super) fn binary(
        &mut self,
        body: &mut Body<'_>,
        handle: Handle<Expression>,
        op: Op,
        left: Handle<Expression>,
        right: Handle<Expression>,
    ) -> Result<Word, Error> {
        let ty = self.type_word(body, handle)?;
        let (a_shape, b_shape) = (self.inner_of(body, left), self.inner_of(body, right));
        let (mut a, mut b) = (self.value(body, left)?, self.value(body, right)?);
        let mut shape = a_shape.clone();
        match (&a_shape, &b_shape) {
            (TypeInner::Vector { size, .. }, TypeInner::Scalar(_)) => {
                let ty = self.inner(&a_shape, super::types::Form::Value)?;
                b = self.composite(ty, vec![b; *size as usize])?;
            }
            (TypeInner::Scalar(_), TypeInner::Vector { size, .. }) => {
                let ty = self.inner(&b_shape, super::types::Form::Value)?;
                a = self.composite(ty, vec![a; *size as usize])?;
                shape = b_shape;
            }
            _ => {}
        }
        let Some(kind) = shape.scalar_kind() else {
            return Err(self.refuse(op, "operators take numbers and vectors of them"));
        };
        match (op, kind) {
            (Op::Divide | Op::Modulo, K::Sint | K::Uint) => {
                return self.integer_division(op, &shape, a, b);
            }
            (Op::ShiftLeft | Op::ShiftRight, _) => return self.shift(op, &shape, a, b),
            (Op::Modulo, K::Float) => {
                return Err(self.refuse(
                    "Modulo of floats",
                    "no rounding of it is the same everywhere",
                ));
            }
            _ => {}
        }
        let q = &mut self.b;
        match (op, kind) {
            (Op::Add, K::Float) => q.f_add(ty, None, a, b),
            (Op::Add, _) => q.i_add(ty, None, a, b),
            (Op::Subtract, K::Float) => q.f_sub(ty, None, a, b),
            (Op::Subtract, _) => q.i_sub(ty, None, a, b),
            (Op::Multiply, K::Float) => q.f_mul(ty, None, a, b),
            (Op::Multiply, _) => q.i_mul(ty, None, a, b),
            (Op::Divide, K::Float) => q.f_div(ty, None, a, b),
            (Op::Equal, K::Float) => q.f_ord_equal(ty, None, a, b),
            (Op::Equal, K::Bool) => q.logical_equal(ty, None, a, b),
            (Op::Equal, _) => q.i_equal(ty, None, a, b),
            (Op::NotEqual, K::Float) => q.f_unord_not_equal(ty, None, a, b),
            (Op::NotEqual | Op::ExclusiveOr, K::Bool) => q.logical_not_equal(ty, None, a, b),
            (Op::NotEqual, _) => q.i_not_equal(ty, None, a, b),
            (Op::Less, K::Float) => q.f_ord_less_than(ty, None, a, b),
            (Op::Less, K::Sint) => q.s_less_than(ty, None, a, b),
            (Op::Less, _) => q.u_less_than(ty, None, a, b),
            (Op::LessEqual, K::Float) => q.f_ord_less_than_equal(ty, None, a, b),
            (Op::LessEqual, K::Sint) => q.s_less_than_equal(ty, None, a, b),
            (Op::LessEqual, _) => q.u_less_than_equal(ty, None, a, b),
            (Op::Greater, K::Float) => q.f_ord_greater_than(ty, None, a, b),
            (Op::Greater, K::Sint) => q.s_greater_than(ty, None, a, b),
            (Op::Greater, _) => q.u_greater_than(ty, None, a, b),
            (Op::GreaterEqual, K::Float) => q.f_ord_greater_than_equal(ty, None, a, b),
            (Op::GreaterEqual, K::Sint) => q.s_greater_than_equal(ty, None, a, b),
            (Op::GreaterEqual, _) => q.u_greater_than_equal(ty, None, a, b),
            (Op::And, K::Bool) | (Op::LogicalAnd, _) => q.logical_and(ty, None, a, b),
            (Op::InclusiveOr, K::Bool) | (Op::LogicalOr, _) => q.logical_or(ty, None, a, b),
            (Op::And, _) => q.bitwise_and(ty, None, a, b),
            (Op::InclusiveOr, _) => q.bitwise_or(ty, None, a, b),
            (Op::ExclusiveOr, _) => q.bitwise_xor(ty, None, a, b),
            (Op::Divide | Op::Modulo | Op::ShiftLeft | Op::ShiftRight, _) => {
                return Err(self.refuse(op, "this operator takes integers"));
            }
        }
        .map_err(|e| self.builder(&e))
    }
}
