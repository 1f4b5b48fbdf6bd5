//! Builds one-launch plans over random buffers and compares this backend with the reference.
#![allow(dead_code)]

pub mod random;
pub mod small_model;

use layerlet_core::backend::{Backend, BackendError, Instance, Place, PlanId};
use layerlet_core::buffer::{Buf, BufferDecl, BufferId, BufferTable, Role};
use layerlet_core::dtype::{DType, Element};
use layerlet_core::launch::{Access, Fused, Launch, Layerlet};
use layerlet_core::plan::Plan;
use layerlet_core::reference::Reference;
use layerlet_cpu::{Cpu, Level};
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// What must not change a byte: instructions, threads, and which launches are shared out among them.
fn variants() -> Vec<(String, Cpu)> {
    let of_level = |level: Level| {
        let settings = [
            ("1 thread", Cpu::with_threads(1)),
            ("2 threads", Cpu::with_threads(2)),
            (
                "5 threads, all work shared",
                Cpu::with_threads(5).inline_below(0),
            ),
        ];
        settings.map(|(name, cpu)| (format!("{}, {name}", level.name()), cpu.at_level(level)))
    };
    Level::available().into_iter().flat_map(of_level).collect()
}

static VARIANTS: LazyLock<Vec<(String, Cpu)>> = LazyLock::new(variants);

/// What scratch holds before anything is written.
const POISON: u8 = 0xa5;

/// A plan with the content of its model and step buffers.
pub struct Case {
    table: BufferTable,
    model_buffers: usize,
    contents: Vec<(BufferId, Vec<u8>)>,
    launches: Vec<Launch>,
}

fn bytes_of<E: bytemuck::Pod>(values: &[E]) -> Vec<u8> {
    bytemuck::cast_slice(values).to_vec()
}

impl Case {
    pub fn new() -> Case {
        Case {
            table: BufferTable::default(),
            model_buffers: 0,
            contents: Vec::new(),
            launches: Vec::new(),
        }
    }

    fn declare<E: Element>(&mut self, shape: &[usize], role: Role, values: &[E]) -> Buf<E> {
        let name = format!("b{}", self.table.len());
        let buf = self
            .table
            .declare(name, shape, role)
            .expect("a small buffer");
        if !values.is_empty() {
            self.contents.push((buf.id(), bytes_of(values)));
        }
        buf
    }

    fn model<E: Element>(&mut self, shape: &[usize], role: Role, values: &[E]) -> Buf<E> {
        assert_eq!(
            self.table.len(),
            self.model_buffers,
            "model buffers come first"
        );
        self.model_buffers += 1;
        self.declare(shape, role, values)
    }

    pub fn weight<E: Element>(&mut self, shape: &[usize], values: &[E]) -> Buf<E> {
        self.model(shape, Role::Weight, values)
    }

    pub fn state<E: Element>(&mut self, shape: &[usize], values: &[E]) -> Buf<E> {
        self.model(shape, Role::State, values)
    }

    pub fn step<E: Element>(&mut self, shape: &[usize], values: &[E]) -> Buf<E> {
        self.declare(shape, Role::Step, values)
    }

    pub fn scratch<E: Element>(&mut self, shape: &[usize]) -> Buf<E> {
        self.declare(shape, Role::Scratch, &[])
    }

    pub fn launch(&mut self, launch: impl Into<Launch>) {
        self.launches.push(launch.into());
    }

    fn plan(&self) -> Plan {
        Plan {
            model_buffers: self.model_buffers,
            buffers: self.table.clone(),
            launches: self.launches.clone(),
        }
    }

    /// Runs twice (state moves on) over poisoned scratch; returns every buffer.
    fn run(&self, backend: &dyn Backend) -> Result<Vec<Vec<u8>>, BackendError> {
        let plan = self.plan();
        let mut model = BufferTable::default();
        for (_, d) in self.table.iter().take(self.model_buffers) {
            redeclare(&mut model, d);
        }
        let mut instance = backend.open(&model)?;
        let id = instance.prepare(&plan)?;
        for (buffer, bytes) in &self.contents {
            instance.write(self.place(id, *buffer), 0, bytes)?;
        }
        for _ in 0..2 {
            instance.poison(id, POISON)?;
            instance.run(id, usize::MAX)?;
        }
        self.table
            .iter()
            .map(|(buffer, decl)| read(instance.as_mut(), self.place(id, buffer), decl))
            .collect()
    }

    fn place(&self, plan: PlanId, buffer: BufferId) -> Place {
        match (buffer.0 as usize) < self.model_buffers {
            true => Place::Model(buffer),
            false => Place::Plan(plan, buffer),
        }
    }

    /// Refuses any difference, on any thread count; buffers in `unwritten` must still be poison here.
    pub fn check_except(&self, unwritten: &BTreeSet<BufferId>) {
        let expected = self.run(&Reference);
        for (variant, cpu) in &*VARIANTS {
            let found = self.run(cpu);
            match (&expected, &found) {
                (Err(expected), Err(found)) => assert_eq!(expected, found),
                (Ok(expected), Ok(found)) => {
                    for ((id, decl), (expected, found)) in
                        self.table.iter().zip(expected.iter().zip(found))
                    {
                        if unwritten.contains(&id) {
                            let poison = found.iter().all(|&b| b == POISON);
                            assert!(poison, "{} was stored although nobody reads it", decl.name);
                        } else {
                            compare(decl, expected, found, variant, &self.launches);
                        }
                    }
                }
                (expected, found) => panic!(
                    "{variant}: expected {:?}, found {:?}",
                    expected.as_ref().err(),
                    found.as_ref().err()
                ),
            }
        }
    }

    pub fn check(&self) {
        self.check_except(&BTreeSet::new());
    }

    /// Checks the launches so far as the stages of a layerlet, with and without what only they see.
    pub fn check_fused(&mut self, layerlet: Layerlet) {
        let stages = std::mem::take(&mut self.launches);
        let operands: Vec<_> = stages.iter().flat_map(Launch::operands).collect();
        let named = |access| {
            let named = operands.iter().filter(move |o| o.access == access);
            named.map(|o| o.buffer).collect::<BTreeSet<_>>()
        };
        let between = &named(Access::Write) & &named(Access::Read);
        for keep_intermediates in [false, true] {
            self.launches = vec![Launch::Fused(Fused {
                layerlet,
                stages: stages.clone(),
                keep_intermediates,
            })];
            match keep_intermediates {
                false => self.check_except(&between),
                true => self.check(),
            }
        }
    }

    /// The reference's error, which this backend must give too.
    pub fn refusal(&self) -> String {
        self.check();
        self.run(&Reference).expect_err("a refusal").to_string()
    }
}

fn redeclare(table: &mut BufferTable, d: &BufferDecl) {
    let declared = match d.dtype {
        DType::Bf16 => table
            .declare::<layerlet_core::numerics::bf16>(&d.name, &d.shape, d.role)
            .map(drop),
        DType::F32 => table.declare::<f32>(&d.name, &d.shape, d.role).map(drop),
        DType::I8 => table.declare::<i8>(&d.name, &d.shape, d.role).map(drop),
        DType::I32 => table.declare::<i32>(&d.name, &d.shape, d.role).map(drop),
        DType::U32 => table.declare::<u32>(&d.name, &d.shape, d.role).map(drop),
    };
    declared.expect("declared once already");
}

fn read(
    instance: &mut dyn Instance,
    place: Place,
    decl: &BufferDecl,
) -> Result<Vec<u8>, BackendError> {
    let mut bytes = vec![0; decl.bytes()];
    instance.read(place, 0, &mut bytes)?;
    Ok(bytes)
}

/// Bytes must be equal; any two NaNs are.
fn compare(decl: &BufferDecl, expected: &[u8], found: &[u8], variant: &str, launches: &[Launch]) {
    let size = decl.dtype.size();
    let elements = expected.chunks(size).zip(found.chunks(size)).enumerate();
    for (i, (e, f)) in elements {
        if e != f && !(is_nan(decl.dtype, e) && is_nan(decl.dtype, f)) {
            panic!(
                "{} {} {:?} differs at {i}: expected {e:x?}, found {f:x?}, {variant}\n{launches:#?}",
                decl.name, decl.dtype, decl.shape
            );
        }
    }
}

fn is_nan(dtype: DType, bytes: &[u8]) -> bool {
    match dtype {
        DType::Bf16 => u16::from_le_bytes([bytes[0], bytes[1]]) & 0x7fff > 0x7f80,
        DType::F32 => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).is_nan(),
        _ => false,
    }
}
