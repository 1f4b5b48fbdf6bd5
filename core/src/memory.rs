//! Buffers in host memory: what the reference and the CPU backend compute on.

use crate::buffer::{Buf, BufferDecl};
use crate::dtype::{DType, Element};
use crate::numerics::bf16;
use alloc::{vec, vec::Vec};

/// The content of one buffer.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum HostBuffer {
    Bf16(Vec<bf16>),
    F32(Vec<f32>),
    I8(Vec<i8>),
    I32(Vec<i32>),
    U32(Vec<u32>),
}

macro_rules! for_each_dtype {
    ($self:expr, $v:ident => $e:expr) => {
        match $self {
            HostBuffer::Bf16($v) => $e,
            HostBuffer::F32($v) => $e,
            HostBuffer::I8($v) => $e,
            HostBuffer::I32($v) => $e,
            HostBuffer::U32($v) => $e,
        }
    };
}

impl HostBuffer {
    /// A zeroed buffer of the declared size.
    pub fn zeroed(decl: &BufferDecl) -> Self {
        let n = decl.elements();
        match decl.dtype {
            DType::Bf16 => HostBuffer::Bf16(vec![bf16::ZERO; n]),
            DType::F32 => HostBuffer::F32(vec![0.0; n]),
            DType::I8 => HostBuffer::I8(vec![0; n]),
            DType::I32 => HostBuffer::I32(vec![0; n]),
            DType::U32 => HostBuffer::U32(vec![0; n]),
        }
    }

    /// The content as bytes (little-endian hosts only, as everything here).
    pub fn bytes(&self) -> &[u8] {
        for_each_dtype!(self, v => bytemuck::cast_slice(v))
    }

    /// The content as writable bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        for_each_dtype!(self, v => bytemuck::cast_slice_mut(v))
    }

    /// Fills the buffer with one byte, to show that nobody reads what nobody wrote.
    pub fn poison(&mut self, byte: u8) {
        self.bytes_mut().fill(byte);
    }
}

/// An element type with its variant of [`HostBuffer`].
pub trait HostElement: Element {
    /// The vector inside, if it holds this type.
    fn view(buffer: &HostBuffer) -> Option<&Vec<Self>>;
    /// The same, writable.
    fn view_mut(buffer: &mut HostBuffer) -> Option<&mut Vec<Self>>;
}

macro_rules! host_element {
    ($($ty:ty => $variant:ident),*) => {$(
        impl HostElement for $ty {
            fn view(buffer: &HostBuffer) -> Option<&Vec<Self>> {
                if let HostBuffer::$variant(v) = buffer { Some(v) } else { None }
            }
            fn view_mut(buffer: &mut HostBuffer) -> Option<&mut Vec<Self>> {
                if let HostBuffer::$variant(v) = buffer { Some(v) } else { None }
            }
        }
    )*};
}
host_element!(bf16 => Bf16, f32 => F32, i8 => I8, i32 => I32, u32 => U32);

/// The memory that one run of a plan sees: the model's buffers, then the plan's own.
pub struct Memory<'a> {
    decls: &'a crate::buffer::BufferTable,
    model: &'a mut [HostBuffer],
    local: &'a mut [HostBuffer],
}

impl<'a> Memory<'a> {
    /// Joins the model's buffers and the plan's into the plan's id space.
    pub fn new(
        decls: &'a crate::buffer::BufferTable,
        model: &'a mut [HostBuffer],
        local: &'a mut [HostBuffer],
    ) -> Self {
        assert_eq!(decls.len(), model.len() + local.len());
        Memory {
            decls,
            model,
            local,
        }
    }

    fn slot(&self, index: usize) -> &HostBuffer {
        match index.checked_sub(self.model.len()) {
            None => &self.model[index],
            Some(i) => &self.local[i],
        }
    }

    fn slot_mut(&mut self, index: usize) -> &mut HostBuffer {
        match index.checked_sub(self.model.len()) {
            None => &mut self.model[index],
            Some(i) => &mut self.local[i],
        }
    }

    /// The elements of a buffer. Panics on a dtype that the plan's validation would have refused.
    pub fn get<E: HostElement>(&self, buf: Buf<E>) -> &[E] {
        E::view(self.slot(buf.id().0 as usize)).expect("validated dtype")
    }

    /// The elements of a buffer, writable in place.
    pub fn get_mut<E: HostElement>(&mut self, buf: Buf<E>) -> &mut [E] {
        E::view_mut(self.slot_mut(buf.id().0 as usize)).expect("validated dtype")
    }

    /// Moves a buffer out, so that it can be written while others are read; [`Memory::put`] returns it.
    pub fn take<E: HostElement>(&mut self, buf: Buf<E>) -> Vec<E> {
        core::mem::take(E::view_mut(self.slot_mut(buf.id().0 as usize)).expect("validated dtype"))
    }

    /// Returns a buffer that was taken.
    pub fn put<E: HostElement>(&mut self, buf: Buf<E>, content: Vec<E>) {
        let slot = E::view_mut(self.slot_mut(buf.id().0 as usize)).expect("validated dtype");
        debug_assert!(slot.is_empty(), "a buffer is put back where it was taken");
        *slot = content;
    }

    /// The shape of a buffer. Panics on a rank that the plan's validation would have refused.
    pub fn dims<E: Element, const N: usize>(&self, buf: Buf<E>) -> [usize; N] {
        self.decls.dims(buf).expect("validated shape")
    }
}
