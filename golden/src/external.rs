//! Other people's kernels: dumps of inputs and outputs, compared with the reference.
//!
//! A dump is a safetensors file whose metadata names the operation (`op`) and its static parameters
//! (`parameters`, TOML); each tensor bears the name of an operand. State is dumped twice: `state` as it
//! was, `state.after` as the kernel left it. `golden/EXTERNAL.md` shows how to write one.

use crate::compare::{Value, unravel};
use crate::fixture::launch_of;
use comfy_table::{CellAlignment, Table, presets};
use layerlet_core::backend::{Backend, BackendError, Place};
use layerlet_core::buffer::{BufferDecl, BufferId, BufferTable, Role};
use layerlet_core::dtype::DType;
use layerlet_core::launch::Access;
use layerlet_core::plan::{Plan, PlanError};
use layerlet_core::reference::Reference;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Distance at which the report stops to count one by one.
const FAR: u64 = 3;

/// What is wrong with a dump.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct ExternalError {
    path: String,
    problem: String,
}

impl ExternalError {
    fn new(path: &Path, problem: impl fmt::Display) -> ExternalError {
        ExternalError {
            path: path.display().to_string(),
            problem: problem.to_string(),
        }
    }
}

/// One output of one dump beside the reference's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// File name.
    pub file: String,
    /// Operation.
    pub op: String,
    /// Operand.
    pub output: String,
    /// All elements.
    pub elements: usize,
    /// Equal by the contract.
    pub equal: usize,
    /// One step of the dtype apart; integers count their difference.
    pub one: usize,
    /// Two steps apart.
    pub two: usize,
    /// Further apart, NaN beside a number included.
    pub more: usize,
    /// Largest distance; none where only NaNs differ, or nothing does.
    pub most: Option<u64>,
    /// First difference, for people.
    pub first: Option<String>,
}

/// Compares every `*.safetensors` of a folder, by name.
pub fn compare_folder(dir: &Path) -> Result<Vec<Comparison>, ExternalError> {
    let entries = fs::read_dir(dir).map_err(|e| ExternalError::new(dir, e))?;
    let paths: Result<Vec<PathBuf>, _> = entries.map(|entry| entry.map(|e| e.path())).collect();
    let mut paths = paths.map_err(|e| ExternalError::new(dir, e))?;
    paths.retain(|p| p.extension().is_some_and(|e| e == "safetensors"));
    paths.sort();
    if paths.is_empty() {
        return Err(ExternalError::new(dir, "no *.safetensors in this folder"));
    }
    let mut all = Vec::new();
    for path in paths {
        all.extend(compare_file(&path)?);
    }
    Ok(all)
}

/// One tensor of a file, which must be as declared.
pub fn tensor(path: &Path, name: &str, decl: &BufferDecl) -> Result<Vec<u8>, ExternalError> {
    let fail = |problem: String| ExternalError::new(path, problem);
    let bytes = fs::read(path).map_err(|e| fail(e.to_string()))?;
    let file = SafeTensors::deserialize(&bytes).map_err(|e| fail(e.to_string()))?;
    let view = file.tensor(name).map_err(|e| fail(e.to_string()))?;
    let found = convert(name, &view, decl.dtype).map_err(fail)?;
    match found.shape == decl.shape {
        true => Ok(found.bytes),
        false => Err(fail(format!(
            "{name} has shape {:?}, expected {:?}",
            found.shape, decl.shape
        ))),
    }
}

/// Compares one dump.
pub fn compare_file(path: &Path) -> Result<Vec<Comparison>, ExternalError> {
    let fail = |problem: String| ExternalError::new(path, problem);
    let bytes = fs::read(path).map_err(|e| fail(e.to_string()))?;
    let dump = Dump::read(&bytes).map_err(fail)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    dump.compare(&name).map_err(fail)
}

/// A dump as a plan of one launch.
struct Dump {
    plan: Plan,
    inputs: Vec<(BufferId, Vec<u8>)>,
    /// Outputs and states as the other kernel left them.
    found: Vec<(BufferId, Vec<u8>)>,
}

/// A tensor in our terms.
struct Operand {
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Dump {
    fn read(bytes: &[u8]) -> Result<Dump, String> {
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(|e| e.to_string())?;
        let metadata = header.metadata().clone().unwrap_or_default();
        let op = metadata.get("op").ok_or("the metadata has no op")?;
        let parameters = metadata.get("parameters").map_or("", String::as_str);
        let mut table: toml::Table = toml::from_str(parameters)
            .map_err(|e| format!("metadata parameters: {}", e.message()))?;
        table.insert("op".into(), op.clone().into());
        let file = SafeTensors::deserialize(bytes).map_err(|e| e.to_string())?;
        let views: BTreeMap<String, TensorView<'_>> = file.tensors().into_iter().collect();
        Dump::build(&table, &views)
    }

    fn build(
        table: &toml::Table,
        views: &BTreeMap<String, TensorView<'_>>,
    ) -> Result<Dump, String> {
        let after_of = |name: &str| {
            name.strip_suffix(".after")
                .is_some_and(|n| views.contains_key(n))
        };
        let names: Vec<&str> = views
            .keys()
            .map(String::as_str)
            .filter(|n| !after_of(n))
            .collect();
        // Twice: the first launch tells which operand each tensor is, the second names its buffer.
        let places: BTreeMap<&str, u32> = names.iter().copied().zip(0..).collect();
        let operands = launch_of(table, &places)?.operands();
        let mut unknown = names.iter().zip(0..);
        if let Some((name, _)) = unknown.find(|(_, i)| !operands.iter().any(|o| o.buffer.0 == *i)) {
            let known: Vec<&str> = operands.iter().map(|o| o.name).collect();
            return Err(format!(
                "tensor {name} is none of the operands {}",
                known.join(", ")
            ));
        }
        let state = |access| access == Access::ReadWrite;
        for operand in operands.iter().filter(|o| !state(o.access)) {
            let name = format!("{}.after", names[operand.buffer.0 as usize]);
            if views.contains_key(&name) {
                return Err(format!("tensor {name}: {} is no state", operand.name));
            }
        }
        let model_first = operands
            .iter()
            .filter(|o| state(o.access))
            .chain(operands.iter().filter(|o| !state(o.access)));
        let (mut buffers, mut places) = (BufferTable::default(), BTreeMap::new());
        let (mut inputs, mut found, mut states) = (Vec::new(), Vec::new(), 0);
        for operand in model_first {
            let name = names[operand.buffer.0 as usize];
            let tensor = convert(name, &views[name], operand.dtype)?;
            let role = match operand.access {
                Access::Read => Role::Step,
                Access::Write => Role::Output,
                Access::ReadWrite => Role::State,
            };
            let decl = BufferDecl {
                name: name.into(),
                dtype: operand.dtype,
                shape: tensor.shape.clone(),
                role,
            };
            let id = buffers.insert(decl).map_err(|e| e.to_string())?;
            places.insert(name, id.0);
            match operand.access {
                Access::Read => inputs.push((id, tensor.bytes)),
                Access::Write => found.push((id, tensor.bytes)),
                Access::ReadWrite => {
                    states += 1;
                    inputs.push((id, tensor.bytes));
                    found.push((id, after(name, views, operand.dtype, &tensor.shape)?));
                }
            }
        }
        let plan = Plan {
            model_buffers: states,
            buffers,
            launches: vec![launch_of(table, &places)?],
        };
        plan.validate().map_err(plain)?;
        Ok(Dump {
            plan,
            inputs,
            found,
        })
    }

    fn compare(&self, file: &str) -> Result<Vec<Comparison>, String> {
        let expected = self.run().map_err(|e| e.to_string())?;
        let op = self.plan.launches[0].name();
        let outputs = self.found.iter().zip(&expected);
        let compare = |((id, found), expected): (&(BufferId, Vec<u8>), &Vec<u8>)| {
            let decl = self.plan.buffers.get(*id).expect("declared above");
            let mut comparison = compare_bytes(decl.dtype, &decl.shape, expected, found);
            comparison.file = file.into();
            comparison.op = op.into();
            comparison.output.clone_from(&decl.name);
            comparison
        };
        Ok(outputs.map(compare).collect())
    }

    fn run(&self) -> Result<Vec<Vec<u8>>, BackendError> {
        let model = self.plan.buffers.first(self.plan.model_buffers);
        let mut instance = Reference.open(&model)?;
        let plan = instance.prepare(&self.plan)?;
        let place = |id: BufferId| match (id.0 as usize) < self.plan.model_buffers {
            true => Place::Model(id),
            false => Place::Plan(plan, id),
        };
        for (id, bytes) in &self.inputs {
            instance.write(place(*id), 0, bytes)?;
        }
        instance.run(plan, usize::MAX)?;
        let mut written = Vec::new();
        for (id, found) in &self.found {
            let mut bytes = vec![0; found.len()];
            instance.read(place(*id), 0, &mut bytes)?;
            written.push(bytes);
        }
        Ok(written)
    }
}

/// The reason alone: there is one launch, its number says nothing.
fn plain(error: PlanError) -> String {
    match error {
        PlanError::Launch { source, .. } => source.to_string(),
        other => other.to_string(),
    }
}

fn after(
    name: &str,
    views: &BTreeMap<String, TensorView<'_>>,
    dtype: DType,
    shape: &[usize],
) -> Result<Vec<u8>, String> {
    let name = format!("{name}.after");
    let view = views
        .get(&name)
        .ok_or_else(|| format!("state needs the tensor {name} as well"))?;
    let tensor = convert(&name, view, dtype)?;
    match tensor.shape == shape {
        true => Ok(tensor.bytes),
        false => Err(format!(
            "{name} has shape {:?}, expected {shape:?}",
            tensor.shape
        )),
    }
}

/// Bytes in the operand's dtype. Indices may come as int32 or int64, where -1 is "none".
fn convert(name: &str, view: &TensorView<'_>, dtype: DType) -> Result<Operand, String> {
    let shape = view.shape().to_vec();
    let bytes = match (dtype, view.dtype()) {
        (DType::Bf16, Dtype::BF16)
        | (DType::F32, Dtype::F32)
        | (DType::I8, Dtype::I8)
        | (DType::I32, Dtype::I32)
        | (DType::U32, Dtype::U32) => view.data().to_vec(),
        (DType::U32, Dtype::I32) => {
            let mut words = view.data().chunks_exact(4);
            let word = |b: &[u8]| i32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            if let Some(index) = words.find(|b| word(b) < -1) {
                return Err(format!("{name} holds the index {}", word(index)));
            }
            view.data().to_vec()
        }
        (DType::U32, Dtype::I64) => {
            let mut bytes = Vec::with_capacity(view.data().len() / 2);
            for word in view.data().chunks_exact(8) {
                let wide = i64::from_le_bytes(word.try_into().expect("eight bytes"));
                let index = match wide {
                    -1 => layerlet_core::NONE,
                    _ => {
                        u32::try_from(wide).map_err(|_| format!("{name} holds the index {wide}"))?
                    }
                };
                bytes.extend(index.to_le_bytes());
            }
            bytes
        }
        (_, other) => return Err(format!("{name} is {other:?}, expected {dtype}")),
    };
    Ok(Operand { shape, bytes })
}

fn compare_bytes(dtype: DType, shape: &[usize], expected: &[u8], found: &[u8]) -> Comparison {
    let elements = shape.iter().product();
    let mut comparison = Comparison {
        file: String::new(),
        op: String::new(),
        output: String::new(),
        elements,
        equal: 0,
        one: 0,
        two: 0,
        more: 0,
        most: None,
        first: None,
    };
    for i in 0..elements {
        let (e, f) = (
            Value::read(dtype, expected, i),
            Value::read(dtype, found, i),
        );
        if e.same(f) {
            comparison.equal += 1;
            continue;
        }
        let integers = !matches!(dtype, DType::Bf16 | DType::F32);
        let distance = match integers {
            true => Some((e.value - f.value).abs() as u64),
            false => e.ulps(f),
        };
        match distance {
            // +0 beside -0: no step apart, but other bits.
            Some(0..=1) => comparison.one += 1,
            Some(d) if d < FAR => comparison.two += 1,
            _ => comparison.more += 1,
        }
        comparison.most = comparison.most.max(distance);
        comparison.first.get_or_insert_with(|| {
            format!(
                "at {:?}: the reference has {e}, the dump {f}",
                unravel(i, shape)
            )
        });
    }
    comparison
}

/// The comparisons as a table.
pub fn table(comparisons: &[Comparison]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "dump", "op", "output", "elements", "equal", "1 ulp", "2 ulp", "more", "most",
    ]);
    for c in comparisons {
        table.add_row([
            c.file.clone(),
            c.op.clone(),
            c.output.clone(),
            c.elements.to_string(),
            c.equal.to_string(),
            c.one.to_string(),
            c.two.to_string(),
            c.more.to_string(),
            c.most.map_or("-".into(), |most| most.to_string()),
        ]);
    }
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
