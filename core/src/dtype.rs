//! The element types that a buffer can hold.

use crate::numerics::bf16;
use core::fmt;
use serde::{Deserialize, Serialize};

/// Element type of a buffer, as plans and files name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum DType {
    Bf16,
    F32,
    I8,
    I32,
    U32,
}

impl DType {
    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            DType::I8 => 1,
            DType::Bf16 => 2,
            DType::F32 | DType::I32 | DType::U32 => 4,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            DType::Bf16 => "bf16",
            DType::F32 => "f32",
            DType::I8 => "i8",
            DType::I32 => "i32",
            DType::U32 => "u32",
        })
    }
}

/// A Rust type that is the element of a buffer. Sealed by [`crate::memory::HostBuffer`], which has
/// one variant for each.
pub trait Element: bytemuck::Pod + Default + PartialEq + fmt::Debug + Send + Sync {
    /// The name of this type in plans and files.
    const DTYPE: DType;
}

impl Element for bf16 {
    const DTYPE: DType = DType::Bf16;
}
impl Element for f32 {
    const DTYPE: DType = DType::F32;
}
impl Element for i8 {
    const DTYPE: DType = DType::I8;
}
impl Element for i32 {
    const DTYPE: DType = DType::I32;
}
impl Element for u32 {
    const DTYPE: DType = DType::U32;
}
