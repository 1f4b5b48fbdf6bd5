//! Asking for memory before it is needed: a loop over weights that meets each of them once waits for
//! memory alone, and the processor's own prefetchers give up at the end of each page.

/// Asks for what lies `ahead` bytes behind the start of a slice, which may be past its end.
#[inline(always)]
#[allow(unsafe_code)]
pub fn prefetch<T>(from: &[T], ahead: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let address = from.as_ptr().wrapping_byte_add(ahead);
        // SAFETY: a prefetch reads nothing and cannot fault, whatever the address; every x86-64 has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (from, ahead);
}
