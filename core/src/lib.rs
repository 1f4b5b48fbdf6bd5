//! The numerics contract of Layerlet and its executable form.
//!
//! Invariants:
//! - `no_std`, no `unsafe`, no platform transcendental: what runs here runs anywhere with the same bits.
//! - Data goes one way: config and step shape → [`plan`] → [`backend`] → bytes. Nothing here reads a
//!   file, a clock or the environment.
//! - [`ops`] holds one file per operation; a fast kernel elsewhere is right when its bytes are theirs.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod attestation;
pub mod backend;
pub mod buffer;
pub mod capabilities;
pub mod config;
pub mod dtype;
pub mod encoding;
pub mod fixture;
pub mod launch;
pub mod memory;
pub mod numerics;
pub mod ops;
pub mod plan;
pub mod reference;
pub mod work;

/// "No such row, slot or expert" in every index buffer.
pub const NONE: u32 = u32::MAX;
