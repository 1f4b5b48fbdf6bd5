//! How fast a model runs, and how near that is to what the memory can deliver.
//!
//! - Repeats of everything that is compared alternate, so that noise of the machine falls on all of it alike;
//!   the read bandwidth is measured between them, in the same process, by as many threads.
//! - A time holds all that a caller waits for: step data written, launches run, drawn tokens read. Plans are
//!   prepared before the first timed step.
//! - Bytes are counted, never measured: the plan's launches with this step's rows, slots, positions and routes
//!   ([`layerlet_core::work`]). Routes come from an untimed pass over the same tokens; of one row they are known
//!   without it, because a router picks different experts.
//! - Decoding starts from a state that is kept, so that every repeat computes the same tokens.

mod bandwidth;
mod count;
mod measure;
mod memory;
mod profile;
mod report;
mod runner;
mod sequences;
mod settings;
mod summary;

pub use measure::measure;
pub use memory::{peak_resident, peak_resident_in};
pub use report::{Decode, Memory, Movement, OperationTime, Prefill, ReadBandwidth, Report};
pub use settings::Settings;
pub use summary::Summary;
