//! The numerics contract of Layerlet and its executable form.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod numerics;
