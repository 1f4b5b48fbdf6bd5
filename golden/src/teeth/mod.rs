//! Teeth: kernels with a fault that can be switched on. Off, golden must find nothing; on, it must
//! find something. An operation or layerlet without a mutant fails, as does a survivor.

mod attention;
mod dense;
mod experts;
mod gdn;
mod greedy;
mod head;
mod layerlets;
mod mixers;
mod moe_layerlets;
mod norms;
mod parallel_experts;
mod ranks;
mod router;
mod sampling;

use crate::checks::fixtures::{Scope, check};
use crate::fixture::{Fixture, FixtureError};
use crate::parallel::{self, Progress};
use comfy_table::{Table, presets};
use layerlet_core::backend::{Backend, BackendError, DeviceIdentity, Instance};
use layerlet_core::buffer::{Buf, BufferTable};
use layerlet_core::launch::{Launch, LaunchError, Layerlet, OPERATIONS, Operation};
use layerlet_core::memory::{HostElement, Memory};
use layerlet_core::reference::{Execute, HostInstance};
use serde::Serialize;

/// A kernel written apart from the reference, with a fault to switch on.
pub struct Mutant {
    /// The operation or layerlet that it runs.
    pub op: &'static str,
    /// What is wrong with it when the fault is on.
    pub fault: &'static str,
    /// The kernel.
    pub kernel: Kernel,
}

/// Runs a launch of the mutant's operation, with the fault or without.
pub type Kernel = fn(&Launch, &mut Memory<'_>, bool) -> Result<(), LaunchError>;

/// The same for one operation.
type Typed<O> = fn(&O, &mut Memory<'_>, bool) -> Result<(), LaunchError>;

/// Makes a [`Kernel`] from a function on the operation itself.
macro_rules! mutant {
    ($name:literal, $fault:literal, $variant:ident, $kernel:expr) => {
        $crate::teeth::Mutant {
            op: $name,
            fault: $fault,
            kernel: |launch, memory, fault| match launch {
                layerlet_core::launch::Launch::$variant(op) => {
                    let kernel: $crate::teeth::Typed<layerlet_core::ops::$variant> = $kernel;
                    kernel(op, memory, fault)
                }
                other => other.run(memory),
            },
        }
    };
}
use mutant;

/// Runs the definition on changed operands: what a kernel gives that reads the wrong ones.
fn misread<E: HostElement>(
    op: &impl Operation,
    memory: &mut Memory<'_>,
    operand: Buf<E>,
    fault: bool,
    change: impl FnOnce(&mut [E]),
) -> Result<(), LaunchError> {
    let kept = memory.get(operand).to_vec();
    if fault {
        change(memory.get_mut(operand));
    }
    let outcome = op.run(memory);
    memory.get_mut(operand).copy_from_slice(&kept);
    outcome
}

/// Every planted mutant.
pub fn mutants() -> impl Iterator<Item = &'static Mutant> {
    [
        attention::MUTANTS,
        dense::MUTANTS,
        experts::MUTANTS,
        gdn::MUTANTS,
        greedy::MUTANTS,
        head::MUTANTS,
        layerlets::MUTANTS,
        mixers::MUTANTS,
        moe_layerlets::MUTANTS,
        norms::MUTANTS,
        parallel_experts::MUTANTS,
        ranks::MUTANTS,
        router::MUTANTS,
        sampling::MUTANTS,
    ]
    .into_iter()
    .flatten()
}

/// A backend on which one operation runs as a mutant and all others by their definition.
pub struct Planted {
    mutant: &'static Mutant,
    fault: bool,
}

impl Planted {
    /// Plants a mutant.
    pub fn new(mutant: &'static Mutant, fault: bool) -> Planted {
        Planted { mutant, fault }
    }
}

impl Execute for Planted {
    fn execute(&mut self, launch: &Launch, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        match launch.name() == self.mutant.op {
            true => (self.mutant.kernel)(launch, memory, self.fault),
            false => launch.run(memory),
        }
    }
}

impl Backend for Planted {
    fn identity(&self) -> DeviceIdentity {
        DeviceIdentity {
            backend: "mutant".into(),
            device: self.mutant.fault.into(),
            driver: String::new(),
            features: Vec::new(),
        }
    }

    fn layerlets(&self) -> &[Layerlet] {
        &Layerlet::ALL
    }

    fn open(&self, model: &BufferTable) -> Result<Box<dyn Instance>, BackendError> {
        let planted = Planted::new(self.mutant, self.fault);
        Ok(Box::new(HostInstance::new(model, planted)))
    }
}

/// What became of a mutant.
#[derive(Clone, Debug, Serialize)]
pub struct Bite {
    /// Operation or layerlet.
    pub op: String,
    /// What was planted.
    pub fault: String,
    /// Nothing was found with the fault off.
    pub control: bool,
    /// Something was found with the fault on.
    pub caught: bool,
    /// What was found first.
    pub first: String,
}

/// What became of all mutants.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Teeth {
    /// One for each mutant.
    pub bites: Vec<Bite>,
    /// Operations and layerlets without a mutant.
    pub missing: Vec<String>,
}

impl Teeth {
    /// Every mutant caught, every control clean, nothing missing.
    pub fn hold(&self) -> bool {
        self.missing.is_empty() && self.bites.iter().all(|b| b.control && b.caught)
    }

    /// As a table.
    pub fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_header([
            "op",
            "fault",
            "without it",
            "with it",
        ]);
        for b in &self.bites {
            let without = if b.control { "clean" } else { "NOT CLEAN" };
            let with = if b.caught { "caught" } else { "SURVIVES" };
            table.add_row([b.op.as_str(), &b.fault, without, with]);
        }
        table
    }
}

/// Plants every mutant whose operation passes the filter.
pub fn bite(
    fixtures: &[Fixture],
    wanted: impl Fn(&str) -> bool,
    progress: &dyn Progress,
) -> Result<Teeth, FixtureError> {
    let planted: Vec<&'static Mutant> = mutants().filter(|m| wanted(m.op)).collect();
    progress.total(planted.len());
    let bites = parallel::map(&planted, |mutant| {
        progress.started(mutant.op);
        let bite = bite_one(fixtures, mutant);
        progress.finished();
        bite
    });
    let subjects = OPERATIONS
        .iter()
        .copied()
        .chain(Layerlet::ALL.iter().map(|l| l.name()));
    let missing = subjects.filter(|op| wanted(op) && !mutants().any(|m| m.op == *op));
    Ok(Teeth {
        missing: missing.map(String::from).collect(),
        bites: bites.into_iter().collect::<Result<_, _>>()?,
    })
}

/// Most faults show at one size; where they do not, both runs take the sweeps too.
fn bite_one(fixtures: &[Fixture], mutant: &'static Mutant) -> Result<Bite, FixtureError> {
    let (mut first, mut clean) = found(fixtures, mutant, true, false)?;
    let sweep = clean;
    if sweep {
        (first, clean) = found(fixtures, mutant, true, true)?;
    }
    let (_, control) = found(fixtures, mutant, false, sweep)?;
    Ok(Bite {
        op: mutant.op.into(),
        fault: mutant.fault.into(),
        control,
        caught: !clean,
        first,
    })
}

/// First mismatch on a planted backend, and whether there is none. A control without any case is
/// not clean: nothing was checked.
fn found(
    fixtures: &[Fixture],
    mutant: &'static Mutant,
    fault: bool,
    sweep: bool,
) -> Result<(String, bool), FixtureError> {
    let planted = Planted::new(mutant, fault);
    let scope = Scope {
        backends: &[&planted],
        seeds: 1,
        shift: 0,
        pins: None,
        sweep,
        // A mutant's kernel has its own words.
        wording: false,
    };
    let mut cases = 0;
    for fixture in fixtures.iter().filter(|f| f.subject == mutant.op) {
        let report = check(fixture, &scope)?;
        cases += report.cases();
        if let Some(mismatch) = report.mismatches.first() {
            return Ok((mismatch.to_string(), false));
        }
    }
    Ok((String::new(), cases > 0))
}
