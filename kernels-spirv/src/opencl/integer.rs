//! Integer operators whose edges WGSL defines and SPIR-V does not.

use super::{error::Error, types::Form, writer::Writer};
use naga::{BinaryOperator as Op, Scalar, ScalarKind, TypeInner};
use rspirv::spirv::Word;

impl Writer<'_> {
    fn integer(&self, shape: &TypeInner) -> Result<Scalar, Error> {
        match *shape {
            TypeInner::Scalar(scalar) | TypeInner::Vector { scalar, .. } => Ok(scalar),
            ref other => {
                Err(self.refuse(other, "integer operators take integers and vectors of them"))
            }
        }
    }

    /// `x / 0` is `x` and `x % 0` is 0, as with a divisor of one; the same holds for the least integer over -1.
    pub(super) fn integer_division(
        &mut self,
        op: Op,
        shape: &TypeInner,
        a: Word,
        b: Word,
    ) -> Result<Word, Error> {
        let scalar = self.integer(shape)?;
        let signed = scalar.kind == ScalarKind::Sint;
        let ty = self.inner(shape, Form::Value)?;
        let divisor = match self.harmless(scalar, b) {
            true => b,
            false => self.divisor(scalar, shape, a, b)?,
        };
        match (op, signed) {
            (Op::Divide, true) => self.b.s_div(ty, None, a, divisor),
            (Op::Divide, false) => self.b.u_div(ty, None, a, divisor),
            (_, true) => self.b.s_rem(ty, None, a, divisor),
            (_, false) => self.b.u_mod(ty, None, a, divisor),
        }
        .map_err(|e| self.builder(&e))
    }

    fn divisor(
        &mut self,
        scalar: Scalar,
        shape: &TypeInner,
        a: Word,
        b: Word,
    ) -> Result<Word, Error> {
        let (ty, bool) = (self.inner(shape, Form::Value)?, self.bool_like(shape));
        let zero = self.constant_null(ty);
        let one = self.constant_int(scalar, 1);
        let one = self.shaped(one, shape)?;
        let mut unfit = self
            .b
            .i_equal(bool, None, b, zero)
            .map_err(|e| self.builder(&e))?;
        if scalar.kind == ScalarKind::Sint {
            let least = self.constant_int(
                scalar,
                if scalar.width == 8 {
                    i64::MIN
                } else {
                    i32::MIN.into()
                },
            );
            let least = self.shaped(least, shape)?;
            let minus = self.constant_int(scalar, -1);
            let minus = self.shaped(minus, shape)?;
            let a = self
                .b
                .i_equal(bool, None, a, least)
                .map_err(|e| self.builder(&e))?;
            let b = self
                .b
                .i_equal(bool, None, b, minus)
                .map_err(|e| self.builder(&e))?;
            let both = self
                .b
                .logical_and(bool, None, a, b)
                .map_err(|e| self.builder(&e))?;
            unfit = self
                .b
                .logical_or(bool, None, unfit, both)
                .map_err(|e| self.builder(&e))?;
        }
        self.b
            .select(ty, None, unfit, one, b)
            .map_err(|e| self.builder(&e))
    }

    /// A constant divisor other than 0 and -1.
    fn harmless(&self, scalar: Scalar, b: Word) -> bool {
        let mask = if scalar.width == 8 {
            u64::MAX
        } else {
            u32::MAX.into()
        };
        self.bits(b).is_some_and(|bits| bits != 0 && bits != mask)
    }

    /// The bits of a scalar constant.
    fn bits(&self, word: Word) -> Option<u64> {
        let found = self.scalars.iter().find(|&(_, &known)| known == word);
        found.map(|(&(_, bits), _)| bits)
    }

    /// WGSL takes the amount modulo the width.
    pub(super) fn shift(
        &mut self,
        op: Op,
        shape: &TypeInner,
        a: Word,
        amount: Word,
    ) -> Result<Word, Error> {
        let scalar = self.integer(shape)?;
        let ty = self.inner(shape, Form::Value)?;
        let width = u32::from(scalar.width) * 8;
        let mut amount = amount;
        if self
            .bits(amount)
            .is_none_or(|bits| bits >= u64::from(width))
        {
            // The amount is a u32 (or a vector of them) whatever the operand is.
            let counts = match *shape {
                TypeInner::Vector { size, .. } => TypeInner::Vector {
                    size,
                    scalar: Scalar::U32,
                },
                _ => TypeInner::Scalar(Scalar::U32),
            };
            let count = self.inner(&counts, Form::Value)?;
            let mask = self.constant_u32(width - 1);
            let mask = self.shaped(mask, &counts)?;
            amount = self
                .b
                .bitwise_and(count, None, amount, mask)
                .map_err(|e| self.builder(&e))?;
        }
        if scalar.width == 8 {
            amount = self
                .b
                .u_convert(ty, None, amount)
                .map_err(|e| self.builder(&e))?;
        }
        match (op, scalar.kind) {
            (Op::ShiftLeft, _) => self.b.shift_left_logical(ty, None, a, amount),
            (_, ScalarKind::Sint) => self.b.shift_right_arithmetic(ty, None, a, amount),
            _ => self.b.shift_right_logical(ty, None, a, amount),
        }
        .map_err(|e| self.builder(&e))
    }
}
