//! What golden has proved: which kernels, against which reference, on which device, with how many cases.
//!
//! An attestation speaks of bytes that were run. A host compares its own kernels' digests and its own
//! reference with it and refuses what is not the same; it never has to trust a name or a version.

use crate::backend::DeviceIdentity;
use crate::encoding::{EncodingError, Frame};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Version of the byte form.
pub const VERSION: u32 = 1;

const FRAME: Frame = Frame {
    kind: "attestation",
    magic: b"LLAT",
    version: VERSION,
};

/// Everything that one complete run of golden proved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attestation {
    /// SHA-256 over all pins of the reference, by name: the semantics that was proved.
    pub reference: String,
    /// Seed of the random checks.
    pub seed: u64,
    /// Planted faults that were found, of as many; none where the teeth were not tried in this run.
    pub teeth: Option<Teeth>,
    /// One for each kernel on each device.
    pub proofs: Vec<Proof>,
}

/// Planted faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Teeth {
    /// Found.
    pub caught: u32,
    /// Planted.
    pub planted: u32,
}

/// A kernel that gave the reference's bytes in every case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// Operation, layerlet or `model`.
    pub op: String,
    /// Which of its forms.
    pub variant: String,
    /// SHA-256 of the kernel's binary, or of the build that contains it.
    pub kernel: String,
    /// Where it ran.
    pub device: DeviceIdentity,
    /// Inputs.
    pub cases: u64,
}

/// Why a kernel may not be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unproved {
    /// Proved against other semantics.
    #[error("it was proved against reference {found}, this build's is {expected}")]
    OtherReference {
        /// Of the attestation.
        found: String,
        /// Of this build.
        expected: String,
    },
    /// The checks were not checked.
    #[error("the attestation does not say that every planted fault was caught")]
    Toothless,
    /// Proved on another device, driver or set of features.
    #[error("{op} ({variant}) was proved on {found}, not on this {expected} as it is set up")]
    OtherDevice {
        /// Operation or layerlet.
        op: String,
        /// Form.
        variant: String,
        /// Of the attestation.
        found: String,
        /// At hand.
        expected: String,
    },
    /// Nothing is said of it.
    #[error("{op} ({variant}) is not in the attestation")]
    Missing {
        /// Operation or layerlet.
        op: String,
        /// Form.
        variant: String,
    },
    /// Another binary was proved under this name.
    #[error("{op} ({variant}): kernel {found} was proved, this one is {expected}")]
    OtherKernel {
        /// Operation or layerlet.
        op: String,
        /// Form.
        variant: String,
        /// Of the attestation.
        found: String,
        /// At hand.
        expected: String,
    },
}

impl Attestation {
    /// The versioned byte form.
    pub fn encode(&self) -> Vec<u8> {
        FRAME.encode(self)
    }

    /// Reads the byte form.
    pub fn decode(bytes: &[u8]) -> Result<Attestation, EncodingError> {
        FRAME.decode(bytes)
    }

    /// The proof of a kernel against a reference on a device, or why there is none.
    pub fn proof(
        &self,
        reference: &str,
        (op, variant): (&str, &str),
        kernel: &str,
        device: &DeviceIdentity,
    ) -> Result<&Proof, Unproved> {
        // Checks that were not tried, or let a planted fault pass, prove nothing.
        if !self
            .teeth
            .is_some_and(|t| t.planted > 0 && t.caught == t.planted)
        {
            return Err(Unproved::Toothless);
        }
        if self.reference != reference {
            return Err(Unproved::OtherReference {
                found: self.reference.clone(),
                expected: reference.into(),
            });
        }
        let named = |p: &&Proof| p.op == op && p.variant == variant && p.cases > 0;
        let mut named = self.proofs.iter().filter(named);
        let Some(first) = named.next() else {
            return Err(Unproved::Missing {
                op: op.into(),
                variant: variant.into(),
            });
        };
        let all = core::iter::once(first).chain(named);
        let mut same = all.filter(|p| p.kernel == kernel).peekable();
        let Some(elsewhere) = same.peek().copied() else {
            return Err(Unproved::OtherKernel {
                op: op.into(),
                variant: variant.into(),
                found: first.kernel.clone(),
                expected: kernel.into(),
            });
        };
        let here = same.find(|p| p.device == *device);
        here.ok_or_else(|| Unproved::OtherDevice {
            op: op.into(),
            variant: variant.into(),
            found: elsewhere.device.device.clone(),
            expected: device.device.clone(),
        })
    }
}
