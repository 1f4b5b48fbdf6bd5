//! Bindings to the part of oneAPI Level Zero (core and sysman) that Layerlet uses.
//!
//! Written by hand, in C's names, and checked against the installed headers by `tests/headers.rs`: sizes, offsets,
//! values and signatures. Nothing is linked: [`Api::open`] opens the loader at run time, so a program that contains
//! this crate starts where there is no Level Zero, and can say what is missing.
#![allow(non_camel_case_types, non_snake_case)]
#![allow(clippy::missing_safety_doc)] // Every function is C's; the specification says what it may be given.

mod constants;
mod functions;
mod loader;
mod structs;
mod tables;

pub use constants::*;
pub use functions::{Api, SIGNATURES, pfn};
pub use loader::{LIBRARY_VARIABLE, OpenError};
pub use structs::*;
pub use tables::*;

/// A constant as the headers spell it.
pub struct Constant {
    /// C name.
    pub name: &'static str,
    /// Value here.
    pub value: u64,
}

/// A struct as the C compiler must see it.
pub struct Layout {
    /// C name.
    pub name: &'static str,
    /// Size in bytes.
    pub size: usize,
    /// Alignment in bytes.
    pub align: usize,
    /// Name, offset and size of each field.
    pub fields: &'static [(&'static str, usize, usize)],
}

/// A function as declared here: name and parameter types, in Rust's spelling.
pub struct Signature {
    /// C name.
    pub name: &'static str,
    /// Types of the parameters.
    pub parameters: &'static [&'static str],
}
