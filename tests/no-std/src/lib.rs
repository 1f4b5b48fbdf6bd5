//! Proves that `layerlet-core` needs no std: std brings a panic handler of its own, and two of them
//! do not build. It reaches through the whole crate: a plan is decoded and run on the reference.
#![no_std]

#[cfg(feature = "std")]
extern crate std;

extern crate alloc;

use core::alloc::{GlobalAlloc, Layout};
use layerlet_core::backend::Backend;
use layerlet_core::plan::Plan;
use layerlet_core::reference::Reference;

struct NoHeap;

// SAFETY: it never hands out memory, so there is nothing that could be used wrongly.
unsafe impl GlobalAlloc for NoHeap {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }
    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static HEAP: NoHeap = NoHeap;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// Decodes a plan over its own model table, runs it, returns 0 or what went wrong.
///
/// # Safety
/// `bytes` must point to `len` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn layerlet_run(bytes: *const u8, len: usize) -> i32 {
    // SAFETY: the caller's promise.
    let bytes = unsafe { core::slice::from_raw_parts(bytes, len) };
    let Ok(plan) = Plan::decode(bytes) else { return 1 };
    let Ok(mut instance) = Reference.open(&plan.buffers) else { return 2 };
    let Ok(id) = instance.prepare(&plan) else { return 3 };
    match instance.run(id, usize::MAX) {
        Ok(()) => 0,
        Err(_) => 4,
    }
}
