//! A fixture: a plan with its inputs and the digests of what it must write. Whoever carries kernels can
//! carry fixtures too and test them on the device at hand.

use crate::backend::{Backend, BackendError, Place};
use crate::buffer::{BufferDecl, BufferId, Role};
use crate::dtype::DType;
use crate::encoding::{EncodingError, Frame};
use crate::plan::{Plan, PlanError};
use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

const FRAME: Frame = Frame {
    kind: "fixture",
    magic: b"LLFX",
    version: 1,
};

/// A plan over its own small model, with bytes in and digests out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fixture {
    /// `<operation or layerlet>/<name>` and the seed of its inputs.
    pub name: String,
    /// Operation or layerlet that it tests.
    pub subject: String,
    /// What is run.
    pub plan: Plan,
    /// Bytes of every weight, state and step buffer.
    pub inputs: Vec<(BufferId, Vec<u8>)>,
    /// [`digest`] of every state and output buffer after a run.
    pub outputs: Vec<(BufferId, [u8; 32])>,
}

/// Why a fixture was not read, not run, or not met.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FixtureError {
    /// The bytes are no fixture of this build.
    #[error(transparent)]
    Encoding(#[from] EncodingError),
    /// Its plan is none.
    #[error("fixture {fixture}: {source}")]
    Plan {
        /// Which one.
        fixture: String,
        /// What is wrong with it.
        source: PlanError,
    },
    /// It could not be run.
    #[error("fixture {fixture}: {source}")]
    Backend {
        /// Which one.
        fixture: String,
        /// What happened.
        source: BackendError,
    },
    /// It ran and gave other bytes.
    #[error("fixture {fixture}: {subject} writes other bytes than the reference to {buffer}")]
    Mismatch {
        /// Which one.
        fixture: String,
        /// What was tested.
        subject: String,
        /// First buffer that differs.
        buffer: String,
    },
}

impl Fixture {
    /// The versioned byte form.
    pub fn encode(&self) -> Vec<u8> {
        FRAME.encode(self)
    }

    /// Reads the byte form and checks it as far as it goes without a device.
    pub fn decode(bytes: &[u8]) -> Result<Fixture, FixtureError> {
        let fixture: Fixture = FRAME.decode(bytes)?;
        let plan = |source| FixtureError::Plan {
            fixture: fixture.name.clone(),
            source,
        };
        fixture.plan.validate().map_err(plan)?;
        match fixture.gap() {
            None => Ok(fixture),
            Some(problem) => Err(plan(PlanError::Structure(problem))),
        }
    }

    /// A buffer whose content is not given whole, or a result that is not compared.
    fn gap(&self) -> Option<String> {
        let buffers = &self.plan.buffers;
        let read = |role| matches!(role, Role::Weight | Role::State | Role::Step);
        let given = |id| self.inputs.iter().find(|(i, _)| *i == id);
        let short = buffers.iter().find(|(id, decl)| {
            read(decl.role) && given(*id).map(|(_, bytes)| bytes.len()) != Some(decl.bytes())
        });
        if let Some((_, decl)) = short {
            return Some(format!(
                "{} needs {} bytes of input",
                decl.name,
                decl.bytes()
            ));
        }
        let inputs = buffers.iter().filter(|(_, decl)| read(decl.role)).count();
        if self.inputs.len() != inputs {
            return Some("it gives bytes to what is no input, or twice".into());
        }
        let compared = self.outputs.iter().map(|(id, _)| *id);
        match compared.eq(Self::results(&self.plan)) && !self.outputs.is_empty() {
            true => None,
            false => Some("its outputs are not the plan's states and outputs".into()),
        }
    }

    /// Runs it and compares every output: the self-test of a device.
    pub fn test(&self, backend: &dyn Backend) -> Result<(), FixtureError> {
        let failed = |source| FixtureError::Backend {
            fixture: self.name.clone(),
            source,
        };
        let found = self.run(backend).map_err(failed)?;
        match found.iter().zip(&self.outputs).find(|(f, e)| f != e) {
            None => Ok(()),
            Some((_, (id, _))) => Err(FixtureError::Mismatch {
                fixture: self.name.clone(),
                subject: self.subject.clone(),
                buffer: self.decl(*id).map_err(failed)?.name.clone(),
            }),
        }
    }

    /// Digests of the outputs on a backend.
    pub fn run(&self, backend: &dyn Backend) -> Result<Vec<(BufferId, [u8; 32])>, BackendError> {
        let model = self.plan.buffers.first(self.plan.model_buffers);
        let mut instance = backend.open(&model)?;
        let of_model = |id: BufferId| (id.0 as usize) < self.plan.model_buffers;
        for (id, bytes) in self.inputs.iter().filter(|(id, _)| of_model(*id)) {
            instance.write(Place::Model(*id), 0, bytes)?;
        }
        let plan = instance.prepare(&self.plan)?;
        instance.poison(plan, 0xAA)?;
        for (id, bytes) in self.inputs.iter().filter(|(id, _)| !of_model(*id)) {
            instance.write(Place::Plan(plan, *id), 0, bytes)?;
        }
        instance.run(plan, usize::MAX)?;
        let mut outputs = Vec::with_capacity(self.outputs.len());
        for (id, _) in &self.outputs {
            let decl = self.decl(*id)?;
            let mut bytes = vec![0; decl.bytes()];
            let place = match of_model(*id) {
                true => Place::Model(*id),
                false => Place::Plan(plan, *id),
            };
            instance.read(place, 0, &mut bytes)?;
            outputs.push((*id, digest(decl.dtype, &bytes)));
        }
        Ok(outputs)
    }

    /// State and outputs: what a run leaves and promises.
    pub fn results(plan: &Plan) -> impl Iterator<Item = BufferId> + '_ {
        let kept = |role| matches!(role, Role::State | Role::Output);
        let buffers = plan.buffers.iter().filter(move |(_, d)| kept(d.role));
        buffers.map(|(id, _)| id)
    }

    fn decl(&self, id: BufferId) -> Result<&BufferDecl, BackendError> {
        Ok(self.plan.buffers.get(id)?)
    }
}

/// SHA-256 of a buffer's bytes with every NaN replaced by one: payloads are not part of the contract.
pub fn digest(dtype: DType, bytes: &[u8]) -> [u8; 32] {
    let mut bytes = bytes.to_vec();
    unify_nans(dtype, &mut bytes);
    Sha256::digest(&bytes).into()
}

/// Replaces every NaN by the quiet NaN without sign and payload.
pub fn unify_nans(dtype: DType, bytes: &mut [u8]) {
    match dtype {
        DType::Bf16 => bytes.chunks_exact_mut(2).for_each(|b| {
            if u16::from_le_bytes([b[0], b[1]]) & 0x7fff > 0x7f80 {
                b.copy_from_slice(&0x7fc0u16.to_le_bytes());
            }
        }),
        DType::F32 => bytes.chunks_exact_mut(4).for_each(|b| {
            if u32::from_le_bytes([b[0], b[1], b[2], b[3]]) & 0x7fff_ffff > 0x7f80_0000 {
                b.copy_from_slice(&0x7fc0_0000u32.to_le_bytes());
            }
        }),
        DType::I8 | DType::I32 | DType::U32 => {}
    }
}

/// Lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
