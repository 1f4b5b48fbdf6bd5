//! What a plan costs, known before any device is touched: launches, bytes moved, memory.

use super::Plan;
use super::fuse::internal;
use crate::buffer::{BufferId, BufferTable, Role};
use crate::launch::{Access, Fused, Launch, Traffic};
use crate::work::{Occupancy, Work};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Bytes moved by a fused launch: its stages' without what stays on the chip, and with each outside operand once.
pub fn fused_traffic(fused: &Fused, buffers: &BufferTable) -> Traffic {
    Traffic {
        min: fused_bytes(fused, buffers, |stage| stage.traffic(buffers).min),
        max: fused_bytes(fused, buffers, |stage| stage.traffic(buffers).max),
    }
}

/// What a fused launch moves and computes in one step.
pub fn fused_work(fused: &Fused, buffers: &BufferTable, step: &Occupancy) -> Work {
    let stages = fused.stages.iter().map(|stage| stage.work(buffers, step));
    Work {
        bytes: fused_bytes(fused, buffers, |stage| stage.work(buffers, step).bytes),
        ..stages.sum()
    }
}

fn fused_bytes(fused: &Fused, buffers: &BufferTable, bytes: impl Fn(&Launch) -> u64) -> u64 {
    let inside: BTreeSet<BufferId> = match fused.keep_intermediates {
        true => BTreeSet::new(),
        false => internal(fused.layerlet, &fused.stages)
            .into_iter()
            .collect(),
    };
    let mut seen = BTreeSet::new();
    let mut total = 0;
    for stage in &fused.stages {
        let mut moved = bytes(stage);
        for operand in stage.operands() {
            let Ok(decl) = buffers.get(operand.buffer) else {
                continue;
            };
            // Of state, stages touch different parts: the row that is appended is not the pages that are read.
            let again = operand.access == Access::Read
                && decl.role != Role::State
                && seen.contains(&operand.buffer);
            if inside.contains(&operand.buffer) || again {
                moved = moved.saturating_sub(decl.bytes() as u64);
            }
        }
        seen.extend(stage.operands().iter().map(|o| o.buffer));
        total += moved;
    }
    total
}

/// Memory of a plan by who owns it, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct MemoryUse {
    pub weights: u64,
    pub state: u64,
    pub step: u64,
    /// Scratch and outputs, each in a place of its own.
    pub scratch: u64,
    /// The most scratch that is alive at once: what an arena that reuses places needs.
    pub scratch_peak: u64,
}

/// What a plan costs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Name and traffic of each launch.
    pub launches: Vec<(alloc::string::String, Traffic)>,
    /// Sum over all launches.
    pub traffic: Traffic,
    /// Memory.
    pub memory: MemoryUse,
}

impl Plan {
    /// Launches, bytes and memory.
    pub fn cost(&self) -> Cost {
        let one = |l: &Launch| (l.name().into(), l.traffic(&self.buffers));
        let launches: Vec<(alloc::string::String, Traffic)> =
            self.launches.iter().map(one).collect();
        let sum = |f: fn(&Traffic) -> u64| launches.iter().map(|(_, t)| f(t)).sum();
        let traffic = Traffic {
            min: sum(|t| t.min),
            max: sum(|t| t.max),
        };
        Cost {
            traffic,
            memory: self.memory(),
            launches,
        }
    }

    /// What each launch moves and computes in a step that fills the plan's shape like this.
    pub fn work(&self, step: &Occupancy) -> Vec<Work> {
        let launches = self.launches.iter();
        launches.map(|l| l.work(&self.buffers, step)).collect()
    }

    fn memory(&self) -> MemoryUse {
        let mut memory = MemoryUse {
            scratch_peak: self.scratch_peak(),
            ..MemoryUse::default()
        };
        for (_, decl) in self.buffers.iter() {
            let part = match decl.role {
                Role::Weight => &mut memory.weights,
                Role::State => &mut memory.state,
                Role::Step => &mut memory.step,
                Role::Scratch | Role::Output => &mut memory.scratch,
            };
            *part += decl.bytes() as u64;
        }
        memory
    }

    /// Scratch lives from its first writer to its last reader, outputs to the end.
    fn scratch_peak(&self) -> u64 {
        let lives = self.lifetimes();
        let alive = |at: usize| {
            let here = lives
                .iter()
                .filter(|(_, (first, last))| (*first..=*last).contains(&at));
            here.map(|(id, _)| self.buffers.get(*id).map_or(0, |d| d.bytes() as u64))
                .sum()
        };
        (0..self.launches.len()).map(alive).max().unwrap_or(0)
    }

    /// First and last launch that touch each scratch or output buffer. What a fused launch keeps inside has no life.
    pub fn lifetimes(&self) -> BTreeMap<BufferId, (usize, usize)> {
        let mut lives: BTreeMap<BufferId, (usize, usize)> = BTreeMap::new();
        for (at, launch) in self.launches.iter().enumerate() {
            let inside = match launch {
                Launch::Fused(f) if !f.keep_intermediates => internal(f.layerlet, &f.stages),
                _ => Vec::new(),
            };
            for id in launch
                .operands()
                .iter()
                .map(|o| o.buffer)
                .filter(|id| !inside.contains(id))
            {
                let role = self.buffers.get(id).map(|d| d.role);
                let last = match role {
                    Ok(Role::Scratch) => at,
                    Ok(Role::Output) => self.launches.len(),
                    _ => continue,
                };
                let life = lives.entry(id).or_insert((at, last));
                life.1 = life.1.max(last);
            }
        }
        lives
    }
}
