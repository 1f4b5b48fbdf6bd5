//! Large buffers in large pages: a processor's prefetchers stop at the end of a page, and every page
//! takes an entry of the table of addresses that it keeps at hand.

/// Bytes of a huge page, and the least that is worth asking for.
const HUGE: usize = 2 << 20;

/// Asks for huge pages under memory that nobody has touched yet. Where the system has none, nothing
/// happens.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
pub fn ask_for(bytes: &mut [u8]) {
    let start = bytes.as_mut_ptr().align_offset(HUGE);
    let Some(len) = bytes.len().checked_sub(start).map(|len| len / HUGE * HUGE) else {
        return;
    };
    if len == 0 {
        return;
    }
    let whole = &mut bytes[start..start + len];
    // SAFETY: the advice changes how the pages of this slice are backed, not what they hold.
    let _ = unsafe {
        rustix::mm::madvise(
            whole.as_mut_ptr().cast(),
            len,
            rustix::mm::Advice::LinuxHugepage,
        )
    };
}

/// Other systems choose their pages themselves.
#[cfg(not(target_os = "linux"))]
pub fn ask_for(_bytes: &mut [u8]) {}
