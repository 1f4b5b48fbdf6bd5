//! The CPU backend: every operation and every layerlet of [`layerlet_core`] on all cores, with the
//! vector instructions that the processor has.
//!
//! Invariants:
//! - The bytes are the reference's. A kernel may choose what is computed when and where, never how.
//! - Threads share outputs, never a sum: 1, 2 and n threads give the same bytes.
//! - Instructions are chosen once ([`Level`]); every choice gives the same bytes.
//! - `unsafe` lives in `level`, `pool/crew` and `dot_codes/x86`, for the reasons given there.
//! - Step data that is out of range is handed to the operation's definition, which names the fault.
//!
//! Files are named after the operation that they run; the first lines say what makes it fast.

mod arena;
mod argmax;
mod causal_conv1d;
mod delta_gates;
mod dequantize;
mod dot_codes;
mod exact_products;
mod execute;
mod expert_prologue;
mod gated_delta_rule;
mod gated_rms_norm;
mod grouped_linear;
mod huge_pages;
mod identity;
mod layerlets;
mod level;
mod linear;
mod lm_head;
mod paged_attention;
mod pool;
mod prefetch;
mod quantize_rows;
mod rms_norm;
mod rope;
mod router_top_k;
mod shared_expert;
mod silu_mul;
mod state_slots;
mod tiles;
mod vector;
mod weighted_gather;

pub use level::{Level, LevelError, VARIABLE as LEVEL_VARIABLE};

use layerlet_core::backend::{Backend, BackendError, DeviceIdentity, Instance};
use layerlet_core::buffer::BufferTable;
use layerlet_core::launch::Layerlet;
use layerlet_core::reference::HostInstance;
use pool::{Pool, Threads};
use std::thread::available_parallelism;

/// SHA-256 over the sources of this crate and of core, the compiler, the profile and the target: the
/// build that an attestation speaks of.
pub const BUILD_DIGEST: &str = env!("LAYERLET_CPU_BUILD_DIGEST");

/// The cores of this machine.
pub struct Cpu {
    threads: Threads,
}

impl Cpu {
    /// All cores, with the widest instructions.
    pub fn new() -> Cpu {
        Cpu::with_threads(available_parallelism().map_or(1, usize::from))
    }

    /// So many threads; 0 and 1 both stay on the thread that calls.
    pub fn with_threads(threads: usize) -> Cpu {
        Cpu {
            threads: Threads::new(threads, Level::widest()),
        }
    }

    /// With the instructions of another level. No byte depends on it.
    pub fn at_level(mut self, level: Level) -> Cpu {
        self.threads.level = level;
        self
    }

    /// Launches of fewer multiply-adds than this run on the thread that calls, because waking others
    /// costs more; 0 shares out everything. No byte depends on it.
    pub fn inline_below(mut self, work: usize) -> Cpu {
        self.threads.inline_below = work;
        self
    }
}

impl Default for Cpu {
    fn default() -> Self {
        Cpu::new()
    }
}

impl Backend for Cpu {
    fn identity(&self) -> DeviceIdentity {
        identity::identity(self.threads.level)
    }

    fn layerlets(&self) -> &[Layerlet] {
        &Layerlet::ALL
    }

    fn open(&self, model: &BufferTable) -> Result<Box<dyn Instance>, BackendError> {
        let executor = execute::Executor {
            pool: Pool::new(self.threads.clone()),
        };
        Ok(Box::new(HostInstance::new(model, executor)))
    }
}
