//! How fast this machine reads memory, here and now.
//!
//! Every thread adds up its own part of a buffer that no cache holds. Sums that do not depend on each other
//! leave the loads as the only thing to wait for.

use super::report::ReadBandwidth;
use super::summary::Summary;
use crate::error::EngineError;
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::hint::black_box;
use std::time::Instant;

/// Independent sums of a thread: 128 bytes, four vectors of 32 bytes.
const SUMS: usize = 16;

/// A buffer far larger than the caches, and the threads that read it.
pub(super) struct Reader {
    buffer: Vec<u64>,
    pool: ThreadPool,
    part: usize,
    samples: Vec<f64>,
}

impl Reader {
    /// Every thread writes its part first, so that the part's pages exist and lie near it.
    pub fn new(bytes: usize, threads: usize) -> Result<Reader, EngineError> {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.map_err(|e| {
            EngineError::request("the number of threads", threads, format!("fewer: {e}"))
        })?;
        let words = (bytes / size_of::<u64>()).max(threads * SUMS);
        let part = words.div_ceil(threads);
        let mut buffer = vec![0; words];
        pool.install(|| buffer.par_chunks_mut(part).for_each(|part| part.fill(1)));
        Ok(Reader {
            buffer,
            pool,
            part,
            samples: Vec::new(),
        })
    }

    /// Reads the buffer once.
    pub fn sample(&mut self) {
        let started = Instant::now();
        let parts = self.buffer.par_chunks(self.part).with_max_len(1);
        let sum: u64 = self.pool.install(|| parts.map(sum).sum());
        let seconds = started.elapsed().as_secs_f64();
        black_box(sum);
        self.samples.push(self.bytes() as f64 / seconds);
    }

    /// Bytes of the buffer.
    pub fn bytes(&self) -> usize {
        size_of_val(self.buffer.as_slice())
    }

    /// All samples so far; at least one must have been taken.
    pub fn report(&self) -> ReadBandwidth {
        ReadBandwidth {
            buffer_bytes: self.bytes() as u64,
            bytes_per_second: Summary::new(self.samples.clone()),
        }
    }
}

fn sum(words: &[u64]) -> u64 {
    let mut sums = [0u64; SUMS];
    let mut chunks = words.chunks_exact(SUMS);
    for chunk in &mut chunks {
        for (sum, word) in sums.iter_mut().zip(chunk) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.iter().chain(chunks.remainder()).sum()
}

#[cfg(test)]
mod tests {
    use super::{Reader, sum};

    /// A part that is skipped would look like bandwidth.
    #[test]
    fn every_word_is_read_once() {
        let words: Vec<u64> = (0..1003).collect();
        assert_eq!(sum(&words), 1002 * 1003 / 2);
        let reader = Reader::new(1 << 16, 3).unwrap();
        let parts = reader.buffer.chunks(reader.part);
        assert_eq!(parts.len(), 3);
        assert_eq!(parts.map(sum).sum::<u64>(), 1 << 13);
    }
}
