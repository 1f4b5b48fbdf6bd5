//! The forward pass as data: buffers and launches, known in full before any device is touched.
//!
//! Invariants, checked by [`Plan::validate`] on every plan that comes from outside:
//! - every operand has the dtype and shape its operation demands;
//! - launches write only state, scratch and outputs, never weights or step data;
//! - scratch is written before it is read;
//! - a launch does not write a buffer that it also reads, except state that it declares as such.

mod forward;
mod fuse;
mod isolate;
mod layout;
mod mtp;
mod parallel;
mod rope_table;
mod routed_experts;
mod sampling;
mod split;
mod step;
mod step_check;
mod step_input;
mod traffic;

pub use forward::*;
pub use fuse::{fuse, keep_intermediates, unfuse};
pub use isolate::isolate;
pub use layout::*;
pub use mtp::*;
pub use parallel::{RankPlans, Ranks, cut_weight};
pub use rope_table::rope_table;
pub use sampling::*;
pub use split::{Parallelism, Split};
pub use step::*;
pub use step_input::*;
pub use traffic::*;

use crate::buffer::{BufferDecl, BufferError, BufferTable, Role};
use crate::encoding::{EncodingError, Frame};
use crate::launch::{Access, Fused, Launch, LaunchError};
use alloc::{string::String, vec, vec::Vec};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// Why a plan was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum PlanError {
    #[error(transparent)]
    Buffer(#[from] BufferError),
    #[error("launch {index}: {source}")]
    Launch { index: usize, source: LaunchError },
    #[error("launch {index} ({op}) {what} {buffer}")]
    Access {
        index: usize,
        op: &'static str,
        what: &'static str,
        buffer: String,
    },
    #[error("the plan was built for another model: {0}")]
    OtherModel(String),
    #[error("not a plan: {0}")]
    Structure(String),
    #[error(transparent)]
    Encoding(#[from] EncodingError),
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
    #[error("{field} is {found}, expected {expected}")]
    Shape {
        field: &'static str,
        found: usize,
        expected: String,
    },
}

/// A step of a model, ready to be prepared by a backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// How many of the buffers are the model's (weights and state); they come first.
    pub model_buffers: usize,
    /// The model's buffers, then this plan's own.
    pub buffers: BufferTable,
    /// In order of execution.
    pub launches: Vec<Launch>,
}

/// Version of the byte encoding of plans.
pub const PLAN_VERSION: u32 = 1;

const FRAME: Frame = Frame {
    kind: "plan",
    magic: b"LLPL",
    version: PLAN_VERSION,
};

impl Plan {
    /// A plan without launches over a model's buffers.
    pub fn over(model: &BufferTable) -> Plan {
        Plan {
            model_buffers: model.len(),
            buffers: model.clone(),
            launches: Vec::new(),
        }
    }

    /// The versioned byte form in which plans cross plugin boundaries.
    pub fn encode(&self) -> Vec<u8> {
        FRAME.encode(self)
    }

    /// Reads and validates the byte form.
    pub fn decode(bytes: &[u8]) -> Result<Plan, PlanError> {
        let plan: Plan = FRAME.decode(bytes)?;
        plan.validate()?;
        Ok(plan)
    }

    /// SHA-256 of the byte form: what receipts and attestations call this plan.
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.encode()).into()
    }

    /// Refuses a plan that is not over this model.
    pub fn check_model(&self, model: &BufferTable) -> Result<(), PlanError> {
        let mismatch = |what: String| Err(PlanError::OtherModel(what));
        if self.model_buffers != model.len() {
            return mismatch(alloc::format!(
                "it names {} buffers, the model has {}",
                self.model_buffers,
                model.len()
            ));
        }
        match self
            .model_decls()
            .iter()
            .zip(model.iter())
            .find(|(mine, (_, theirs))| *mine != theirs)
        {
            Some((mine, _)) => mismatch(alloc::format!("buffer {} differs", mine.name)),
            None => Ok(()),
        }
    }

    fn model_decls(&self) -> Vec<&BufferDecl> {
        self.buffers
            .iter()
            .take(self.model_buffers)
            .map(|(_, d)| d)
            .collect()
    }

    /// Checks the invariants at the top of this file.
    pub fn validate(&self) -> Result<(), PlanError> {
        self.buffers.validate()?;
        if self.model_buffers > self.buffers.len() {
            return Err(PlanError::Structure(
                "more model buffers than buffers".into(),
            ));
        }
        self.check_owners()?;
        let mut written = vec![false; self.buffers.len()];
        for (index, launch) in self.launches.iter().enumerate() {
            self.check_launch(index, launch, &mut written)?;
        }
        Ok(())
    }

    fn check_owners(&self) -> Result<(), PlanError> {
        for (id, decl) in self.buffers.iter() {
            let of_model = matches!(decl.role, Role::Weight | Role::State);
            if of_model != ((id.0 as usize) < self.model_buffers) {
                return Err(PlanError::Structure(alloc::format!(
                    "buffer {} ({:?}) stands on the wrong side of the model's {} buffers",
                    decl.name,
                    decl.role,
                    self.model_buffers
                )));
            }
        }
        Ok(())
    }

    fn check_launch(
        &self,
        index: usize,
        launch: &Launch,
        written: &mut [bool],
    ) -> Result<(), PlanError> {
        if let Launch::Fused(fused) = launch {
            return self.check_fused(index, fused, written);
        }
        launch
            .check(&self.buffers)
            .map_err(|source| PlanError::Launch { index, source })?;
        let operands = launch.operands();
        let fault = |what, decl: &BufferDecl| PlanError::Access {
            index,
            op: launch.name(),
            what,
            buffer: decl.name.clone(),
        };
        for (i, operand) in operands.iter().enumerate() {
            let decl = self.buffers.get(operand.buffer)?;
            let aliased = operands[..i].iter().any(|o| {
                o.buffer == operand.buffer
                    && (o.access != Access::Read || operand.access != Access::Read)
            });
            if aliased {
                return Err(fault("both reads and writes", decl));
            }
            let scratch = matches!(decl.role, Role::Scratch | Role::Output);
            match operand.access {
                Access::Read if scratch && !written[operand.buffer.0 as usize] => {
                    return Err(fault("reads before anything wrote", decl));
                }
                Access::Write if !scratch => return Err(fault("may not overwrite", decl)),
                Access::ReadWrite if decl.role != Role::State => {
                    return Err(fault("needs as state", decl));
                }
                _ => {}
            }
        }
        for operand in operands.iter().filter(|o| o.access == Access::Write) {
            written[operand.buffer.0 as usize] = true;
        }
        Ok(())
    }

    fn check_fused(
        &self,
        index: usize,
        fused: &Fused,
        written: &mut [bool],
    ) -> Result<(), PlanError> {
        if fused.stages.is_empty() {
            return Err(PlanError::Structure(alloc::format!(
                "launch {index} fuses no stages"
            )));
        }
        for stage in &fused.stages {
            if matches!(stage, Launch::Fused(_)) {
                return Err(PlanError::Structure(alloc::format!(
                    "launch {index} nests a fused launch"
                )));
            }
            self.check_launch(index, stage, written)?;
        }
        Ok(())
    }
}
