//! Uniform parameters as kernel arguments: each scalar is an argument of its own, and the kernel puts them together.

use super::{
    error::Error,
    interface::{Argument, Binding},
    types::Form,
    writer::Writer,
};
use naga::{ArraySize, Handle, Scalar, Type, TypeInner};
use rspirv::spirv::Word;

/// `CL_DEVICE_MAX_PARAMETER_SIZE` is at least 1024 bytes; half is left to the buffers.
const MOST_BYTES: u32 = 512;

impl Writer<'_> {
    pub(super) fn uniform_arguments(
        &self,
        binding: Option<Binding>,
        ty: Handle<Type>,
    ) -> Result<Vec<Argument>, Error> {
        let bytes = self.module.types[ty].inner.size(self.module.to_ctx());
        if bytes > MOST_BYTES {
            return Err(Error::UniformTooLarge {
                binding,
                bytes,
                most: MOST_BYTES,
            });
        }
        let mut leaves = Vec::new();
        self.leaves(ty, 0, &mut leaves)?;
        Ok(leaves
            .into_iter()
            .map(|(offset, _)| Argument::Value { binding, offset })
            .collect())
    }

    /// The scalars of `ty` in ascending order, with their offsets.
    pub(super) fn leaves(
        &self,
        ty: Handle<Type>,
        offset: u32,
        leaves: &mut Vec<(u32, Scalar)>,
    ) -> Result<(), Error> {
        match self.module.types[ty].inner {
            TypeInner::Scalar(scalar) if scalar.width == 4 => leaves.push((offset, scalar)),
            TypeInner::Vector { size, scalar } if scalar.width == 4 => {
                leaves.extend((0..size as u32).map(|i| (offset + 4 * i, scalar)));
            }
            TypeInner::Array {
                base,
                size: ArraySize::Constant(count),
                stride,
            } => {
                for index in 0..count.get() {
                    self.leaves(base, offset + index * stride, leaves)?;
                }
            }
            TypeInner::Struct { ref members, .. } => {
                for member in members {
                    self.leaves(member.ty, offset + member.offset, leaves)?;
                }
            }
            ref other => {
                return Err(self.refuse(other, "uniform parameters are made of numbers of 4 bytes"));
            }
        }
        Ok(())
    }

    /// Puts a value of type `ty` together from the leaves that `next` gives.
    pub(super) fn assemble(
        &mut self,
        ty: Handle<Type>,
        next: &mut impl Iterator<Item = Word>,
    ) -> Result<Word, Error> {
        let module = self.module;
        let parts = match module.types[ty].inner {
            TypeInner::Vector { size, .. } => next.take(size as usize).collect(),
            TypeInner::Array {
                base,
                size: ArraySize::Constant(count),
                ..
            } => (0..count.get())
                .map(|_| self.assemble(base, next))
                .collect::<Result<_, _>>()?,
            TypeInner::Struct { ref members, .. } => members
                .iter()
                .map(|member| self.assemble(member.ty, next))
                .collect::<Result<_, _>>()?,
            _ => {
                return Ok(next
                    .next()
                    .expect("`leaves` counted the scalars of this type"));
            }
        };
        let ty = self.type_of(ty, Form::Memory)?;
        self.composite(ty, parts)
    }
}
