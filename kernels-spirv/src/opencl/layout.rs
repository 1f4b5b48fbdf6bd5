//! OpenCL places a struct as C does, with vectors aligned to their size and three components as wide as four. A buffer
//! whose WGSL layout differs is refused, since the same bytes serve both dialects.

use super::{error::Error, writer::Writer};
use naga::{ArraySize, Handle, Type, TypeInner};

/// Size and alignment in OpenCL.
#[derive(Clone, Copy)]
struct Extent {
    size: u32,
    align: u32,
}

impl Writer<'_> {
    /// Checks that a storage variable's type lies alike in both languages.
    pub(super) fn check_layout(&self, ty: Handle<Type>) -> Result<(), Error> {
        match self.module.types[ty].inner {
            TypeInner::Array {
                base,
                size: ArraySize::Dynamic,
                stride,
            } => {
                let extent = self.extent(base)?;
                self.same("the second element of the array", stride, extent.size)
            }
            _ => self.extent(ty).map(drop),
        }
    }

    fn extent(&self, ty: Handle<Type>) -> Result<Extent, Error> {
        match self.module.types[ty].inner {
            TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) => Ok(Extent {
                size: scalar.width.into(),
                align: scalar.width.into(),
            }),
            TypeInner::Vector { size, scalar } => {
                let bytes = u32::from(scalar.width) * (size as u32).next_power_of_two();
                Ok(Extent {
                    size: bytes,
                    align: bytes,
                })
            }
            TypeInner::Array {
                base,
                size: ArraySize::Constant(count),
                stride,
            } => {
                let element = self.extent(base)?;
                self.same("the second element of an array", stride, element.size)?;
                Ok(Extent {
                    size: stride * count.get(),
                    align: element.align,
                })
            }
            TypeInner::Struct { ref members, span } => {
                let mut end = Extent { size: 0, align: 1 };
                for (index, member) in members.iter().enumerate() {
                    let extent = self.extent(member.ty)?;
                    let offset = end.size.next_multiple_of(extent.align);
                    let name = member.name.clone().unwrap_or_else(|| index.to_string());
                    self.same(&format!("member `{name}`"), member.offset, offset)?;
                    end = Extent {
                        size: offset + extent.size,
                        align: end.align.max(extent.align),
                    };
                }
                end.size = end.size.next_multiple_of(end.align);
                self.same("the end of the struct", span, end.size)?;
                Ok(end)
            }
            ref other => Err(self.refuse(
                other,
                "buffers hold scalars, vectors, and structs and arrays of them",
            )),
        }
    }

    fn same(&self, part: &str, wgsl: u32, opencl: u32) -> Result<(), Error> {
        if wgsl == opencl {
            return Ok(());
        }
        Err(Error::Layout {
            place: self.place.clone(),
            part: part.to_owned(),
            wgsl,
            opencl,
        })
    }
}
