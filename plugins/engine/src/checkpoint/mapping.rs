//! The one place of this crate that needs `unsafe`: a file as memory.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

/// Read-only bytes of a file, or bytes that were handed in.
pub enum Bytes {
    /// A mapped file.
    Mapped(memmap2::Mmap),
    /// Bytes from elsewhere: tests, fuzzing, archives.
    Owned(Vec<u8>),
}

impl Bytes {
    /// Maps a file.
    #[allow(unsafe_code)]
    pub fn map(path: &Path) -> std::io::Result<Bytes> {
        let file = File::open(path)?;
        // SAFETY: the mapping is private and read-only, and every value read from it (offsets, lengths,
        // weights) is checked after it was copied out or is plain data without invalid bit patterns.
        // What no program can rule out is another process that truncates the file meanwhile (the system
        // then ends this process) or rewrites it (weights change, memory safety does not). A copy would
        // rule both out, at the price of the checkpoint's size in memory.
        Ok(Bytes::Mapped(unsafe { memmap2::Mmap::map(&file)? }))
    }

    /// Gives back the memory behind some bytes that nobody will read soon; reading them again fetches
    /// them from the file. A loader that has copied a tensor needs room for one copy, not for two.
    #[allow(unsafe_code)]
    pub fn release(&self, range: Range<usize>) {
        #[cfg(unix)]
        if let Bytes::Mapped(map) = self {
            use memmap2::UncheckedAdvice::DontNeed;
            // SAFETY: a private, read-only mapping of a file has nothing that dropping its pages could
            // lose. A system that refuses keeps them, which costs memory alone.
            let _ = unsafe { map.unchecked_advise_range(DontNeed, range.start, range.len()) };
        }
    }
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map,
            Bytes::Owned(bytes) => bytes,
        }
    }
}
