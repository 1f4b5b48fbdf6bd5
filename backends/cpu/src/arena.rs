//! Memory of one launch: taken from one block that the next launch uses again, so that a warm decode
//! loop allocates nothing.
//!
//! Threads do not allocate here: what a job needs besides its operands is taken before it starts, one
//! piece for each thread ([`crate::pool::Pool::each_with`]).
#![allow(
    clippy::mut_from_ref,
    reason = "every call gives memory that nobody else has"
)]

pub use bumpalo::Bump;

use bumpalo::collections::Vec;
use layerlet_core::dtype::Element;

/// `n` zeros.
pub fn zeros<T: Element>(arena: &Bump, n: usize) -> &mut [T] {
    arena.alloc_slice_fill_default(n)
}

/// What an iterator yields, as a slice. Nothing in it is dropped: it holds references and numbers.
pub fn list<T>(arena: &Bump, items: impl IntoIterator<Item = T>) -> &mut [T] {
    let mut list = Vec::new_in(arena);
    list.extend(items);
    list.into_bump_slice_mut()
}
