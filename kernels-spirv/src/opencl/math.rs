//! Built-in functions: those whose result is the same everywhere. The others are refused, with what to use instead.

use super::{error::Error, function::Body, interface::Capability, types::Form, writer::Writer};
use naga::{Expression, Handle, MathFunction as F, Scalar, ScalarKind as K, TypeInner, VectorSize};
use rspirv::{
    dr::Operand,
    spirv::{
        OpenclStd100Op as Op, PackedVectorFormat::PackedVectorFormat4x8Bit as FourBytes, Word,
    },
};

impl Writer<'_> {
    pub(super) fn math(
        &mut self,
        body: &mut Body<'_>,
        handle: Handle<Expression>,
        function: F,
        arguments: &[Handle<Expression>],
    ) -> Result<Word, Error> {
        let ty = self.type_word(body, handle)?;
        let shape = self.inner_of(body, arguments[0]);
        let kind = shape.scalar_kind();
        let mut values = Vec::new();
        for &argument in arguments {
            values.push(self.value(body, argument)?);
        }
        let a = values[0];
        let float = kind == Some(K::Float);
        match function {
            F::Dot4I8Packed | F::Dot4U8Packed => {
                self.require(Capability::IntegerDot);
                match function {
                    F::Dot4I8Packed => self.b.s_dot(ty, None, a, values[1], Some(FourBytes)),
                    _ => self.b.u_dot(ty, None, a, values[1], Some(FourBytes)),
                }
                .map_err(|e| self.builder(&e))
            }
            F::Min | F::Max => self.pick(function, &shape, ty, a, values[1]),
            F::Clamp => {
                let low = self.pick(F::Max, &shape, ty, a, values[1])?;
                self.pick(F::Min, &shape, ty, low, values[2])
            }
            F::Abs if float => self.opencl(Op::fabs, ty, &values),
            F::Abs if kind == Some(K::Uint) => Ok(a),
            F::Abs => self.opencl(Op::s_abs, ty, &values),
            F::Floor => self.opencl(Op::floor, ty, &values),
            F::Ceil => self.opencl(Op::ceil, ty, &values),
            F::Trunc => self.opencl(Op::trunc, ty, &values),
            F::Round => self.opencl(Op::rint, ty, &values),
            F::Sqrt => self.opencl(Op::sqrt, ty, &values),
            F::CountOneBits => self.opencl(Op::popcount, ty, &values),
            F::CountLeadingZeros => self.opencl(Op::clz, ty, &values),
            F::CountTrailingZeros => self.opencl(Op::ctz, ty, &values),
            F::FirstLeadingBit if shape == TypeInner::Scalar(Scalar::U32) => {
                // 31 - clz; for zero that is -1, all bits set, as WGSL has it.
                let zeros = self.opencl(Op::clz, ty, &values)?;
                let top = self.constant_u32(31);
                self.b
                    .i_sub(ty, None, top, zeros)
                    .map_err(|e| self.builder(&e))
            }
            F::ReverseBits if shape == TypeInner::Scalar(Scalar::U32) => self.reverse_bits(a),
            F::Dot if !float => self.integer_dot(&shape, ty, a, values[1]),
            F::ExtractBits => self.extract_bits(&shape, ty, &values),
            F::Unpack4xI8 | F::Unpack4xU8 => self.unpack(function, ty, a),
            F::Pack4xI8 | F::Pack4xU8 => self.pack(a),
            F::Dot => Err(self.refuse(function, "its order of addition is not defined for floats")),
            F::Fma => Err(self.refuse(function, "products and sums are rounded apart")),
            F::Exp
            | F::Exp2
            | F::Log
            | F::Log2
            | F::Pow
            | F::InverseSqrt
            | F::Tanh
            | F::Sin
            | F::Cos => Err(self.refuse(
                function,
                "drivers differ in it; use the contract's own functions",
            )),
            other => Err(self.refuse(other, "it has no OpenCL form that the contract uses")),
        }
    }

    pub(super) fn opencl(&mut self, op: Op, ty: Word, values: &[Word]) -> Result<Word, Error> {
        let operands: Vec<Operand> = values.iter().copied().map(Operand::IdRef).collect();
        self.b
            .ext_inst(ty, None, self.opencl, op as u32, operands)
            .map_err(|e| self.builder(&e))
    }

    /// The smaller or larger; of floats by one comparison, so that zeros of both signs are told apart everywhere alike.
    fn pick(
        &mut self,
        function: F,
        shape: &TypeInner,
        ty: Word,
        a: Word,
        b: Word,
    ) -> Result<Word, Error> {
        let op = match (function, shape.scalar_kind()) {
            (F::Min, Some(K::Sint)) => Op::s_min,
            (F::Min, Some(K::Uint)) => Op::u_min,
            (_, Some(K::Sint)) => Op::s_max,
            (_, Some(K::Uint)) => Op::u_max,
            _ => {
                let bool = self.bool_like(shape);
                let (less, than) = if function == F::Min { (b, a) } else { (a, b) };
                let second = self
                    .b
                    .f_ord_less_than(bool, None, less, than)
                    .map_err(|e| self.builder(&e))?;
                return self
                    .b
                    .select(ty, None, second, b, a)
                    .map_err(|e| self.builder(&e));
            }
        };
        self.opencl(op, ty, &[a, b])
    }

    /// Neighbours change places: bits, pairs, ... halves. The instruction for it is not in every consumer.
    fn reverse_bits(&mut self, word: Word) -> Result<Word, Error> {
        let ty = self.u32();
        let mut word = word;
        for (by, mask) in [
            (1, 0x5555_5555),
            (2, 0x3333_3333),
            (4, 0x0f0f_0f0f),
            (8, 0x00ff_00ff),
            (16, 0x0000_ffff),
        ] {
            let (by, mask) = (self.constant_u32(by), self.constant_u32(mask));
            let b = &mut self.b;
            let swapped = (|| {
                let high = b.shift_right_logical(ty, None, word, by)?;
                let high = b.bitwise_and(ty, None, high, mask)?;
                let low = b.bitwise_and(ty, None, word, mask)?;
                let low = b.shift_left_logical(ty, None, low, by)?;
                b.bitwise_or(ty, None, high, low)
            })();
            word = swapped.map_err(|e| self.builder(&e))?;
        }
        Ok(word)
    }

    fn integer_dot(
        &mut self,
        shape: &TypeInner,
        ty: Word,
        a: Word,
        b: Word,
    ) -> Result<Word, Error> {
        let TypeInner::Vector { size, .. } = *shape else {
            return Err(self.refuse(shape, "a dot product takes vectors"));
        };
        let vector = self.inner(shape, Form::Value)?;
        let products = self
            .b
            .i_mul(vector, None, a, b)
            .map_err(|e| self.builder(&e))?;
        let mut sum = self
            .b
            .composite_extract(ty, None, products, [0])
            .map_err(|e| self.builder(&e))?;
        for index in 1..size as u32 {
            let product = self
                .b
                .composite_extract(ty, None, products, [index])
                .map_err(|e| self.builder(&e))?;
            sum = self
                .b
                .i_add(ty, None, sum, product)
                .map_err(|e| self.builder(&e))?;
        }
        Ok(sum)
    }

    /// `o = min(offset, 32)`, `c = min(count, 32 - o)`, then a shift to the top and one down; no bits give 0.
    fn extract_bits(
        &mut self,
        shape: &TypeInner,
        ty: Word,
        values: &[Word],
    ) -> Result<Word, Error> {
        let &TypeInner::Scalar(scalar) = shape else {
            return Err(self.refuse(
                "ExtractBits of a vector",
                "only a scalar's bits are extracted",
            ));
        };
        let (u32, bool) = (self.u32(), self.bool());
        let (width, zero) = (self.constant_u32(32), self.constant_u32(0));
        let offset = self.opencl(Op::u_min, u32, &[values[1], width])?;
        let room = self
            .b
            .i_sub(u32, None, width, offset)
            .map_err(|e| self.builder(&e))?;
        let count = self.opencl(Op::u_min, u32, &[values[2], room])?;
        let up = self
            .b
            .i_sub(u32, None, room, count)
            .map_err(|e| self.builder(&e))?;
        let down = self
            .b
            .i_sub(u32, None, width, count)
            .map_err(|e| self.builder(&e))?;
        let number = TypeInner::Scalar(scalar);
        let high = self.shift(naga::BinaryOperator::ShiftLeft, &number, values[0], up)?;
        let low = self.shift(naga::BinaryOperator::ShiftRight, &number, high, down)?;
        let none = self
            .b
            .i_equal(bool, None, count, zero)
            .map_err(|e| self.builder(&e))?;
        self.b
            .select(ty, None, none, zero, low)
            .map_err(|e| self.builder(&e))
    }

    fn unpack(&mut self, function: F, ty: Word, word: Word) -> Result<Word, Error> {
        let u32 = self.u32();
        let top = self.constant_u32(24);
        let mut parts = Vec::new();
        for index in 0..4 {
            let up = self.constant_u32(24 - 8 * index);
            let high = self
                .b
                .shift_left_logical(u32, None, word, up)
                .map_err(|e| self.builder(&e))?;
            let part = match function {
                F::Unpack4xI8 => self.b.shift_right_arithmetic(u32, None, high, top),
                _ => self.b.shift_right_logical(u32, None, high, top),
            };
            parts.push(part.map_err(|e| self.builder(&e))?);
        }
        self.composite(ty, parts)
    }

    fn pack(&mut self, vector: Word) -> Result<Word, Error> {
        let u32 = self.u32();
        let byte = self.constant_u32(0xff);
        let mut packed = self.constant_u32(0);
        for index in 0..VectorSize::Quad as u32 {
            let part = self
                .b
                .composite_extract(u32, None, vector, [index])
                .map_err(|e| self.builder(&e))?;
            let part = self
                .b
                .bitwise_and(u32, None, part, byte)
                .map_err(|e| self.builder(&e))?;
            let up = self.constant_u32(8 * index);
            let part = self
                .b
                .shift_left_logical(u32, None, part, up)
                .map_err(|e| self.builder(&e))?;
            packed = self
                .b
                .bitwise_or(u32, None, packed, part)
                .map_err(|e| self.builder(&e))?;
        }
        Ok(packed)
    }
}
