//! Buffers as a plan sees them: a name, a dtype, a shape and a lifetime, never an address.

use crate::dtype::{DType, Element};
use crate::encoding::{EncodingError, Frame};
use alloc::{format, string::String, vec::Vec};
use core::marker::PhantomData;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How long a buffer lives and who writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Role {
    /// Written once when the model is loaded, read-only after that.
    Weight,
    /// Outlives a step: KV pages, conv and recurrent state. Written by launches.
    State,
    /// Written by the host before each run: ids, positions, slots, page tables.
    Step,
    /// Lives inside one run; its content is poison at the start.
    Scratch,
    /// Scratch that the host may read after a run.
    Output,
}

/// A declared buffer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct BufferDecl {
    pub name: String,
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub role: Role,
}

impl BufferDecl {
    /// Number of elements. Declared shapes are checked for overflow when they enter a table.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.elements() * self.dtype.size()
    }
}

/// Handle of a buffer whose elements are `E`: a launch that mixes up dtypes does not compile.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub struct Buf<E> {
    index: u32,
    #[serde(skip)]
    element: PhantomData<fn() -> E>,
}

impl<E> Clone for Buf<E> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<E> Copy for Buf<E> {}
impl<E> PartialEq for Buf<E> {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index
    }
}
impl<E> Eq for Buf<E> {}
impl<E: Element> core::fmt::Debug for Buf<E> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "#{}:{}", self.index, E::DTYPE)
    }
}

impl<E> Buf<E> {
    /// Position of the buffer in its plan's table.
    pub fn id(self) -> BufferId {
        BufferId(self.index)
    }
}

/// Untyped handle: position of a buffer in a plan's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BufferId(pub u32);

/// What is wrong with a buffer, by its name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum BufferError {
    #[error("buffer {name}: expected shape {expected}, found {found:?}")]
    Shape {
        name: String,
        expected: String,
        found: Vec<usize>,
    },
    #[error("buffer {name}: expected dtype {expected}, found {found}")]
    DType {
        name: String,
        expected: DType,
        found: DType,
    },
    #[error("buffer {name}: shape {shape:?} does not fit into memory addresses")]
    TooLarge { name: String, shape: Vec<usize> },
    #[error("buffer name {name} is declared twice")]
    Duplicate { name: String },
    #[error("there is no buffer #{index}; the table has {len}")]
    Unknown { index: u32, len: usize },
    #[error("there is no buffer named {name}")]
    NoSuchName { name: String },
}

/// The buffers of a model (weights and state) or of a plan (the model's, then its own).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BufferTable {
    decls: Vec<BufferDecl>,
}

/// In this form a model's buffers cross plugin boundaries.
const FRAME: Frame = Frame {
    kind: "buffer table",
    magic: b"LLBT",
    version: 1,
};

impl BufferTable {
    /// The versioned byte form.
    pub fn encode(&self) -> Vec<u8> {
        FRAME.encode(self)
    }

    /// Reads the byte form; [`BufferTable::validate`] says whether it makes sense.
    pub fn decode(bytes: &[u8]) -> Result<BufferTable, EncodingError> {
        FRAME.decode(bytes)
    }

    /// Declares a buffer and returns its typed handle.
    pub fn declare<E: Element>(
        &mut self,
        name: impl Into<String>,
        shape: &[usize],
        role: Role,
    ) -> Result<Buf<E>, BufferError> {
        let id = self.insert(BufferDecl {
            name: name.into(),
            dtype: E::DTYPE,
            shape: shape.into(),
            role,
        })?;
        Ok(Buf {
            index: id.0,
            element: PhantomData,
        })
    }

    /// Declares a buffer whose dtype is a value.
    pub fn insert(&mut self, decl: BufferDecl) -> Result<BufferId, BufferError> {
        check_size(&decl)?;
        if self.decls.iter().any(|d| d.name == decl.name) {
            return Err(BufferError::Duplicate { name: decl.name });
        }
        self.decls.push(decl);
        Ok(BufferId((self.decls.len() - 1) as u32))
    }

    /// The first `count` buffers as a table of their own, under the same ids.
    pub fn first(&self, count: usize) -> BufferTable {
        let decls = self.decls.iter().take(count).cloned();
        BufferTable {
            decls: decls.collect(),
        }
    }

    /// Number of buffers.
    pub fn len(&self) -> usize {
        self.decls.len()
    }

    /// True when nothing is declared.
    pub fn is_empty(&self) -> bool {
        self.decls.is_empty()
    }

    /// All buffers in order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (BufferId, &BufferDecl)> {
        (0u32..).map(BufferId).zip(&self.decls)
    }

    /// The declaration behind a handle.
    pub fn get(&self, id: BufferId) -> Result<&BufferDecl, BufferError> {
        self.decls.get(id.0 as usize).ok_or(BufferError::Unknown {
            index: id.0,
            len: self.decls.len(),
        })
    }

    /// Finds a buffer by name.
    pub fn find(&self, name: &str) -> Result<BufferId, BufferError> {
        self.decls
            .iter()
            .position(|d| d.name == name)
            .map(|i| BufferId(i as u32))
            .ok_or_else(|| BufferError::NoSuchName { name: name.into() })
    }

    /// Finds a buffer by name and checks its dtype.
    pub fn find_typed<E: Element>(&self, name: &str) -> Result<Buf<E>, BufferError> {
        self.typed(self.find(name)?)
    }

    /// Turns an untyped handle into a typed one, checking the dtype.
    pub fn typed<E: Element>(&self, id: BufferId) -> Result<Buf<E>, BufferError> {
        let decl = self.get(id)?;
        if decl.dtype != E::DTYPE {
            return Err(BufferError::DType {
                name: decl.name.clone(),
                expected: E::DTYPE,
                found: decl.dtype,
            });
        }
        Ok(Buf {
            index: id.0,
            element: PhantomData,
        })
    }

    /// The shape of a buffer that must have rank `N`.
    pub fn dims<E: Element, const N: usize>(&self, buf: Buf<E>) -> Result<[usize; N], BufferError> {
        let decl = self.get(self.typed::<E>(buf.id())?.id())?;
        decl.shape
            .as_slice()
            .try_into()
            .map_err(|_| BufferError::Shape {
                name: decl.name.clone(),
                expected: format!("of rank {N}"),
                found: decl.shape.clone(),
            })
    }

    /// Refuses a buffer whose shape is not exactly this one.
    pub fn expect<E: Element>(&self, buf: Buf<E>, shape: &[usize]) -> Result<(), BufferError> {
        let decl = self.get(self.typed::<E>(buf.id())?.id())?;
        if decl.shape == shape {
            return Ok(());
        }
        Err(BufferError::Shape {
            name: decl.name.clone(),
            expected: format!("{shape:?}"),
            found: decl.shape.clone(),
        })
    }

    /// An error for a shape rule that is not a plain equality ("a multiple of 4", ...).
    pub fn shape_error<E: Element>(&self, buf: Buf<E>, expected: impl Into<String>) -> BufferError {
        match self.get(buf.id()) {
            Err(unknown) => unknown,
            Ok(decl) => BufferError::Shape {
                name: decl.name.clone(),
                expected: expected.into(),
                found: decl.shape.clone(),
            },
        }
    }

    /// Bytes of a buffer; 0 for a handle of another table.
    pub fn bytes<E>(&self, buf: Buf<E>) -> u64 {
        self.get(buf.id()).map_or(0, |d| d.bytes() as u64)
    }

    /// Bytes of all buffers of one role.
    pub fn bytes_of(&self, role: Role) -> u64 {
        let decls = self.decls.iter().filter(|d| d.role == role);
        decls.map(|d| d.bytes() as u64).sum()
    }

    /// Checks a table that came from outside: sizes must not overflow, names must be unique.
    pub fn validate(&self) -> Result<(), BufferError> {
        let mut names: Vec<&str> = self.decls.iter().map(|d| d.name.as_str()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|w| w[0] == w[1]) {
            return Err(BufferError::Duplicate {
                name: pair[0].into(),
            });
        }
        self.decls.iter().try_for_each(check_size)
    }
}

fn check_size(decl: &BufferDecl) -> Result<(), BufferError> {
    decl.shape
        .iter()
        // A dimension of 0 excuses no other: every product of some of them stays in range as well.
        .try_fold(decl.dtype.size(), |n, &d| n.checked_mul(d.max(1)))
        .filter(|&n| n <= isize::MAX as usize)
        .map(|_| ())
        .ok_or_else(|| BufferError::TooLarge {
            name: decl.name.clone(),
            shape: decl.shape.clone(),
        })
}
