//! A case: a plan over its own small model, with the bytes of everything that it reads.

use layerlet_core::buffer::{BufferDecl, BufferId, Role};
use layerlet_core::launch::{Access, Launch};
use layerlet_core::plan::Plan;

/// A plan with inputs: what a check runs.
#[derive(Clone, Debug)]
pub struct Case {
    /// Where it comes from: fixture name and what was varied.
    pub name: String,
    /// Operation or layerlet under test: its last launch.
    pub subject: &'static str,
    /// What is run.
    pub plan: Plan,
    /// Bytes of every weight, state and step buffer.
    pub inputs: Vec<(BufferId, Vec<u8>)>,
}

impl Case {
    /// The buffers that a run writes and leaves readable, in order of first writing.
    pub fn written(&self) -> Vec<BufferId> {
        let mut ids = Vec::new();
        for launch in &self.plan.launches {
            for id in written(launch, &self.plan) {
                if !ids.contains(&id) {
                    ids.push(id);
                }
            }
        }
        ids
    }

    /// The declaration of one of the plan's buffers.
    pub fn decl(&self, id: BufferId) -> &BufferDecl {
        self.plan.buffers.get(id).expect("ids come from this plan")
    }

    /// The same plan with every fused launch replaced by its stages.
    pub fn staged(&self) -> Case {
        let mut case = self.clone();
        let launches = std::mem::take(&mut case.plan.launches);
        case.plan.launches = launches
            .into_iter()
            .flat_map(|launch| match launch {
                Launch::Fused(fused) => fused.stages,
                other => vec![other],
            })
            .collect();
        case
    }

    /// The same plan with the intermediates of fused launches kept, or not.
    pub fn keeping(&self, keep: bool) -> Case {
        let mut case = self.clone();
        for launch in &mut case.plan.launches {
            if let Launch::Fused(fused) = launch {
                fused.keep_intermediates = keep;
            }
        }
        case
    }

    /// Whether a launch is fused.
    pub fn is_fused(&self) -> bool {
        self.plan
            .launches
            .iter()
            .any(|l| matches!(l, Launch::Fused(_)))
    }
}

fn written(launch: &Launch, plan: &Plan) -> Vec<BufferId> {
    let visible = |id: BufferId| match launch {
        Launch::Fused(fused) if !fused.keep_intermediates => plan
            .buffers
            .get(id)
            .is_ok_and(|d| matches!(d.role, Role::State | Role::Output)),
        _ => true,
    };
    launch
        .operands()
        .iter()
        .filter(|o| o.access != Access::Read && visible(o.buffer))
        .map(|o| o.buffer)
        .collect()
}
