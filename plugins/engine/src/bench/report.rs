//! What was measured, as numbers: the schema of `--json`.

use super::settings::Settings;
use super::summary::Summary;
use layerlet_core::backend::DeviceIdentity;
use layerlet_core::work::Work;
use serde::{Deserialize, Serialize};

/// Everything that a run has measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What computed.
    pub device: DeviceIdentity,
    /// On so many threads, which also read for the bandwidth.
    pub threads: usize,
    /// With the backend's fused kernels.
    pub fused: bool,
    /// What was measured.
    pub settings: Settings,
    /// Sizes.
    pub memory: Memory,
    /// The prompt.
    pub prefill: Prefill,
    /// Decoding, one entry a batch.
    pub decode: Vec<Decode>,
    /// Decoding one sequence after further contexts.
    pub contexts: Vec<Decode>,
    /// The memory's speed in the same run.
    pub read_bandwidth: Option<ReadBandwidth>,
    /// Where the prompt's time goes, the longest first.
    pub prefill_operations: Vec<OperationTime>,
    /// Where the time of a decode step of the first batch goes, the longest first.
    pub decode_operations: Vec<OperationTime>,
}

/// Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Weights on the device.
    pub weights: u64,
    /// Room for keys, values and recurrent state.
    pub state: u64,
    /// The process's peak once everything that is timed had run.
    pub peak_resident: Option<u64>,
}

/// A prompt's way through the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Prefill {
    pub tokens_per_second: Summary,
    /// From the first chunk to the first drawn token.
    pub time_to_first_token_seconds: Summary,
    /// Of the whole prompt.
    pub movement: Option<Movement>,
}

/// Sequences decoded together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Decode {
    pub batch: usize,
    /// Tokens of each sequence before the first step.
    pub context: usize,
    /// Of all sequences together.
    pub tokens_per_second: Summary,
    /// Of all steps together.
    pub movement: Option<Movement>,
}

/// What the tokens of a timed run moved, against what the memory delivers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Movement {
    /// Of the whole run.
    pub work: Work,
    /// Bytes of weights, state and activations that a token touches.
    pub bytes_per_token: f64,
    /// Of them, at the median's speed.
    pub bytes_per_second: f64,
    /// Of the best read bandwidth.
    pub share_of_read_bandwidth: f64,
}

/// The speed at which a large buffer was read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct ReadBandwidth {
    pub buffer_bytes: u64,
    /// Its `max` is the one that shares refer to: what the memory can do when nothing disturbs it.
    pub bytes_per_second: Summary,
}

/// All launches of one operation or layerlet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct OperationTime {
    pub name: String,
    pub launches: usize,
    /// Median over the passes.
    pub seconds: f64,
    /// Of the sum over all operations.
    pub share: f64,
    /// Mean over the passes.
    pub work: Work,
}
