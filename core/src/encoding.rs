//! The frame of everything that crosses a boundary as bytes: four letters, a version, then postcard.
//!
//! A reader takes exactly the version it was built for. Another one is refused by number, never guessed at.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// Why bytes were not read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EncodingError {
    /// Something else, or damaged.
    #[error("not a {kind}: {problem}")]
    Damaged {
        /// What was expected.
        kind: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// Written by another build.
    #[error("{kind} format {found}, this build reads {expected}")]
    Version {
        /// What it is.
        kind: &'static str,
        /// Of the bytes.
        found: u32,
        /// Of this build.
        expected: u32,
    },
}

/// One kind of encoded value.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// For messages.
    pub kind: &'static str,
    /// The first four bytes.
    pub magic: &'static [u8; 4],
    /// Changes with every change of the encoded types.
    pub version: u32,
}

impl Frame {
    /// Frames a value.
    pub fn encode(&self, value: &impl Serialize) -> Vec<u8> {
        let mut bytes = self.magic.to_vec();
        bytes.extend(self.version.to_le_bytes());
        bytes.extend(postcard::to_allocvec(value).expect("core's types are encodable"));
        bytes
    }

    /// Reads a framed value to the last byte.
    pub fn decode<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, EncodingError> {
        let damaged = |problem: String| EncodingError::Damaged {
            kind: self.kind,
            problem,
        };
        let letters = core::str::from_utf8(self.magic).unwrap_or_default();
        let body = bytes
            .strip_prefix(self.magic)
            .ok_or_else(|| damaged(format!("the first bytes are not {letters}")))?;
        let (version, body) = body
            .split_first_chunk()
            .ok_or_else(|| damaged("it ends in the header".into()))?;
        let found = u32::from_le_bytes(*version);
        if found != self.version {
            return Err(EncodingError::Version {
                kind: self.kind,
                found,
                expected: self.version,
            });
        }
        let (value, rest) = postcard::take_from_bytes(body).map_err(|e| damaged(format!("{e}")))?;
        match rest.len() {
            0 => Ok(value),
            n => Err(damaged(format!("{n} bytes follow its end"))),
        }
    }
}
