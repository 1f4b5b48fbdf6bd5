//! The C ABI of native backend plugins (`include/layerlet_plugin.h` in Rust), and [`export_backend!`],
//! which puts any [`layerlet_core::backend::Backend`] behind it.
//!
//! Invariants:
//! - [`Plugin`] begins with the same three fields in every version; a host reads nothing else before it has
//!   compared them with its own.
//! - No panic crosses the edge: it becomes [`FAILED`] with its message.
//! - `unsafe` lives in `export`, where pointers of the host are read; the host has its own half.

mod export;

pub use export::{Exported, Options};

use core::ffi::c_void;

/// Version of this ABI.
pub const ABI: u32 = 1;

/// Target triple that this crate was built for.
pub const TARGET: &str = env!("LAYERLET_TARGET");

/// Name of the one function that a plugin exports.
pub const ENTRY: &str = "layerlet_plugin";

/// Done.
pub const OK: i32 = 0;
/// The input cannot be used; nothing has changed.
pub const REFUSED: i32 = 1;
/// The device or the plugin is broken.
pub const FAILED: i32 = 2;

/// Bytes that are lent for the time of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Bytes {
    pub data: *const u8,
    pub len: usize,
}

impl Bytes {
    /// Lends a slice.
    pub const fn of(bytes: &[u8]) -> Bytes {
        Bytes {
            data: bytes.as_ptr(),
            len: bytes.len(),
        }
    }
}

// SAFETY: only static descriptions are shared between threads; the bytes of a call stay in it.
#[allow(unsafe_code)]
unsafe impl Sync for Bytes {}

/// Takes bytes that the other side gives.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Sink {
    pub context: *mut c_void,
    pub take: extern "C" fn(*mut c_void, Bytes),
}

/// [`Place::owner`]: weights and state.
pub const OF_MODEL: u32 = 0;
/// [`Place::owner`]: step data, scratch and outputs of one plan.
pub const OF_PLAN: u32 = 1;

/// Which memory a buffer's number counts in.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Place {
    pub owner: u32,
    pub plan: u32,
    pub buffer: u32,
}

/// What a plugin offers; the header says what each function does.
#[repr(C)]
#[allow(missing_docs)]
pub struct Plugin {
    pub abi: u32,
    pub plan_format: u32,
    pub target: Bytes,
    pub create: extern "C" fn(Bytes, *mut *mut c_void, Sink) -> i32,
    pub destroy: extern "C" fn(*mut c_void),
    pub capabilities: extern "C" fn(*const c_void, Sink, Sink) -> i32,
    pub open: extern "C" fn(*const c_void, Bytes, *mut *mut c_void, Sink) -> i32,
    pub close: extern "C" fn(*mut c_void),
    pub write: extern "C" fn(*mut c_void, Place, usize, Bytes, Sink) -> i32,
    pub read: extern "C" fn(*mut c_void, Place, usize, *mut u8, usize, Sink) -> i32,
    pub prepare: extern "C" fn(*mut c_void, Bytes, *mut u32, Sink) -> i32,
    pub run: extern "C" fn(*mut c_void, u32, usize, usize, Sink) -> i32,
    pub poison: extern "C" fn(*mut c_void, u32, u8, Sink) -> i32,
}

/// The type of [`ENTRY`].
pub type Entry = extern "C" fn() -> *const Plugin;
