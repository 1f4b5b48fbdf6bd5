//! What a backend says of itself across a plugin's edge, in bytes.

use crate::backend::DeviceIdentity;
use crate::encoding::{EncodingError, Frame};
use crate::launch::Layerlet;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

const FRAME: Frame = Frame {
    kind: "list of capabilities",
    magic: b"LLCP",
    version: 1,
};

/// Who a backend is, and which fused kernels it offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// Who is being proved.
    pub identity: DeviceIdentity,
    /// The fused kernels on offer.
    pub layerlets: Vec<Layerlet>,
}

impl Capabilities {
    /// The versioned byte form.
    pub fn encode(&self) -> Vec<u8> {
        FRAME.encode(self)
    }

    /// Reads the byte form.
    pub fn decode(bytes: &[u8]) -> Result<Capabilities, EncodingError> {
        FRAME.decode(bytes)
    }
}
