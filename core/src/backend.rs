//! What a device must offer: hold a model's buffers, prepare plans once, run them many times.
//!
//! Everything that crosses this boundary is bytes, ids and encoded plans, so that a backend may sit
//! behind a command list, a thread pool or a plugin's edge.

use crate::buffer::{BufferError, BufferId, BufferTable};
use crate::launch::{LaunchError, Layerlet};
use crate::plan::{Plan, PlanError};
use alloc::{boxed::Box, string::String, vec::Vec};
use core::ops::Range;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What an attestation says of the device that was proved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceIdentity {
    /// Backend name, as on the command line.
    pub backend: String,
    /// Device name as its maker calls it.
    pub device: String,
    /// Driver or compiler version; empty where there is none.
    pub driver: String,
    /// Features that select kernels.
    pub features: Vec<String>,
}

/// Why a backend refused or failed. After a device error it refuses everything.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum BackendError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error(transparent)]
    Buffer(#[from] BufferError),
    #[error("plan {0:?} was not prepared here")]
    UnknownPlan(PlanId),
    #[error("{name}: bytes {offset}..{end} lie outside its {size} bytes", end = offset.saturating_add(*len))]
    OutOfRange {
        name: String,
        offset: usize,
        len: usize,
        size: usize,
    },
    #[error("{name} is a buffer of the {found}, expected one of the {expected}")]
    WrongOwner {
        name: String,
        found: &'static str,
        expected: &'static str,
    },
    #[error("{backend} offers no {layerlet} kernel", layerlet = layerlet.name())]
    NoSuchKernel { backend: String, layerlet: Layerlet },
    #[error("{backend}: the device is lost: {message}")]
    DeviceLost { backend: String, message: String },
    #[error("{backend}: out of device memory: {message}")]
    OutOfMemory { backend: String, message: String },
    #[error("{backend}: {message}")]
    Device { backend: String, message: String },
}

/// A plan that an [`Instance`] has prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PlanId(pub u32);

/// Which memory a buffer id counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Weights and state, shared by all plans.
    Model(BufferId),
    /// Step, scratch and output buffers of one plan (ids as in the plan's own table).
    Plan(PlanId, BufferId),
}

/// A kind of device.
pub trait Backend: Send + Sync {
    /// Who is being proved.
    fn identity(&self) -> DeviceIdentity;

    /// The fused kernels on offer; a plan may contain no others.
    fn layerlets(&self) -> &[Layerlet];

    /// Takes memory for a model's weights and state. State starts as zeros.
    fn open(&self, model: &BufferTable) -> Result<Box<dyn Instance>, BackendError>;
}

/// One model's memory on a device, with the plans prepared over it.
pub trait Instance: Send {
    /// Writes part of a buffer.
    fn write(&mut self, place: Place, offset: usize, bytes: &[u8]) -> Result<(), BackendError>;

    /// Reads part of a buffer. Scratch is readable too: golden compares every launch.
    fn read(&mut self, place: Place, offset: usize, bytes: &mut [u8]) -> Result<(), BackendError>;

    /// Compiles, packs, records. Weights must have been written.
    fn prepare(&mut self, plan: &Plan) -> Result<PlanId, BackendError>;

    /// Runs the launches of a plan that lie in `launches`, in order, on what earlier runs left in its buffers.
    fn run_range(&mut self, plan: PlanId, launches: Range<usize>) -> Result<(), BackendError>;

    /// Runs the first `launches` launches of a plan (`usize::MAX`: all of them).
    fn run(&mut self, plan: PlanId, launches: usize) -> Result<(), BackendError> {
        self.run_range(plan, 0..launches)
    }

    /// Fills the scratch and output buffers of a plan with one byte, so that a launch that reads
    /// what nobody wrote, or writes less than it should, cannot pass.
    fn poison(&mut self, plan: PlanId, byte: u8) -> Result<(), BackendError>;
}
