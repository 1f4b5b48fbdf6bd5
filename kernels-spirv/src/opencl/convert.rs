//! Conversions and bit casts.

use super::{error::Error, function::Body, types::Form, writer::Writer};
use naga::{
    Expression, Handle, Scalar, ScalarKind as K, TypeInner, proc::min_max_float_representable_by,
};
use rspirv::{
    dr::Operand,
    spirv::{OpenclStd100Op, Word},
};

impl Writer<'_> {
    pub(super) fn convert(
        &mut self,
        body: &mut Body<'_>,
        handle: Handle<Expression>,
        operand: Handle<Expression>,
        kind: K,
        width: Option<u8>,
    ) -> Result<Word, Error> {
        let shape = self.inner_of(body, operand);
        let value = self.value(body, operand)?;
        let ty = self.type_word(body, handle)?;
        let (TypeInner::Scalar(from) | TypeInner::Vector { scalar: from, .. }) = shape else {
            return Err(self.refuse(shape, "numbers and vectors are converted"));
        };
        let own = self.inner(&shape, Form::Value)?;
        let Some(width) = width else {
            return match own == ty {
                true => Ok(value),
                false => self
                    .b
                    .bitcast(ty, None, value)
                    .map_err(|e| self.builder(&e)),
            };
        };
        let to = Scalar { kind, width };
        match (from.kind, to.kind) {
            _ if own == ty => Ok(value),
            (K::Bool, _) => {
                let one = match to.kind {
                    K::Float => self.literal(naga::Literal::F32(1.0))?,
                    _ => self.constant_int(to, 1),
                };
                let one = self.shaped(one, &shape)?;
                let zero = self.constant_null(ty);
                self.b
                    .select(ty, None, value, one, zero)
                    .map_err(|e| self.builder(&e))
            }
            (_, K::Bool) => {
                let zero = self.constant_null(own);
                match from.kind {
                    K::Float => self.b.f_unord_not_equal(ty, None, value, zero),
                    _ => self.b.i_not_equal(ty, None, value, zero),
                }
                .map_err(|e| self.builder(&e))
            }
            (K::Float, K::Sint | K::Uint) => {
                let value = self.clamp_to_range(&shape, own, from, to, value)?;
                match to.kind {
                    K::Sint => self.b.convert_f_to_s(ty, None, value),
                    _ => self.b.convert_f_to_u(ty, None, value),
                }
                .map_err(|e| self.builder(&e))
            }
            (K::Sint, K::Float) => self
                .b
                .convert_s_to_f(ty, None, value)
                .map_err(|e| self.builder(&e)),
            (K::Uint, K::Float) => self
                .b
                .convert_u_to_f(ty, None, value)
                .map_err(|e| self.builder(&e)),
            (K::Sint, _) => self
                .b
                .s_convert(ty, None, value)
                .map_err(|e| self.builder(&e)),
            _ => self
                .b
                .u_convert(ty, None, value)
                .map_err(|e| self.builder(&e)),
        }
    }

    /// WGSL clamps a float to the integer's range; the nearest floats inside it are the bounds.
    fn clamp_to_range(
        &mut self,
        shape: &TypeInner,
        ty: Word,
        from: Scalar,
        to: Scalar,
        value: Word,
    ) -> Result<Word, Error> {
        let (least, most) = min_max_float_representable_by(from, to);
        let least = self.literal(least)?;
        let least = self.shaped(least, shape)?;
        let most = self.literal(most)?;
        let most = self.shaped(most, shape)?;
        let mut value = value;
        for (op, bound) in [(OpenclStd100Op::fmax, least), (OpenclStd100Op::fmin, most)] {
            let operands = [Operand::IdRef(value), Operand::IdRef(bound)];
            value = self
                .b
                .ext_inst(ty, None, self.opencl, op as u32, operands)
                .map_err(|e| self.builder(&e))?;
        }
        Ok(value)
    }
}
