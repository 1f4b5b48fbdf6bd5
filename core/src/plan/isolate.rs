//! One launch of a plan as a plan of its own, for whoever wants to run that launch again elsewhere.

use super::fuse::internal;
use super::{Plan, PlanError};
use crate::buffer::{BufferDecl, BufferId, BufferTable, Role};
use crate::launch::{Access, Launch};
use alloc::{format, vec, vec::Vec};

/// The launch at `index` alone, under the buffer ids that it has in `plan`.
///
/// What it reads of the plan's own buffers becomes step data and what it leaves becomes output, so that
/// its inputs and results are those of a [`Fixture`](crate::fixture::Fixture). Buffers that it does not
/// touch keep their names and lose their elements.
pub fn isolate(plan: &Plan, index: usize) -> Result<Plan, PlanError> {
    let launch = plan.launches.get(index).ok_or_else(|| {
        let launches = plan.launches.len();
        PlanError::Structure(format!("there is no launch {index} among {launches}"))
    })?;
    let hidden = match launch {
        Launch::Fused(fused) if !fused.keep_intermediates => {
            internal(fused.layerlet, &fused.stages)
        }
        _ => Vec::new(),
    };
    let operands = launch.operands();
    let has = |id: BufferId, access: fn(Access) -> bool| {
        let mut operands = operands.iter();
        operands.any(|o| o.buffer == id && access(o.access))
    };
    let mut buffers = BufferTable::default();
    for (id, decl) in plan.buffers.iter() {
        let written = has(id, |access| access != Access::Read);
        let role = match decl.role {
            Role::Weight | Role::State => decl.role,
            _ if hidden.contains(&id) => Role::Scratch,
            _ if written => Role::Output,
            _ if has(id, |_| true) => Role::Step,
            _ => Role::Scratch,
        };
        let shape = match has(id, |_| true) {
            true => decl.shape.clone(),
            false => vec![0],
        };
        buffers.insert(BufferDecl {
            role,
            shape,
            ..decl.clone()
        })?;
    }
    let isolated = Plan {
        model_buffers: plan.model_buffers,
        buffers,
        launches: vec![launch.clone()],
    };
    isolated.validate()?;
    Ok(isolated)
}
