//! Fixtures: operation, shapes and input recipe in a small file; `golden/README.md` shows the form.

use crate::case::Case;
use crate::external;
use crate::generate::{Fill, generate};
use layerlet_core::buffer::{BufferDecl, BufferTable, Role};
use layerlet_core::dtype::DType;
use layerlet_core::launch::{Access, Fused, Launch, Layerlet, OPERATIONS};
use layerlet_core::plan::Plan;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A parsed fixture file.
#[derive(Clone, Debug)]
pub struct Fixture {
    /// `<operation or layerlet>/<file name>`.
    pub name: String,
    /// What is under test: the layerlet, or the last launch's operation.
    pub subject: &'static str,
    /// Sizes that a sweep runs through: a dimension and its values.
    pub sweep: Option<Sweep>,
    /// What the error must contain where the input is to be refused.
    pub refused: Option<String>,
    file: File,
    path: PathBuf,
}

/// What is wrong with a fixture file.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {message}")]
pub struct FixtureError {
    path: String,
    message: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// What this fixture is for.
    #[serde(rename = "about")]
    _about: String,
    #[serde(default)]
    seed: u64,
    /// Fuse the launches into this layerlet.
    layerlet: Option<Layerlet>,
    /// Named sizes.
    #[serde(default)]
    dims: BTreeMap<String, usize>,
    sweep: Option<Sweep>,
    refused: Option<String>,
    buffer: BTreeMap<String, Recipe>,
    launch: Vec<toml::Table>,
}

/// A dimension that takes every value of a range: the first row must never notice.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// Name in `[dims]`.
    pub dim: String,
    /// First value.
    pub from: usize,
    /// Last value.
    pub to: usize,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Recipe {
    shape: Vec<Extent>,
    fill: Option<Fill>,
    role: Option<Role>,
}

/// A number, or sums of products of numbers and named sizes: `"2*Hk*Dk + Hv*Dv"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Extent {
    Number(usize),
    Expression(String),
}

impl Extent {
    fn value(&self, dims: &BTreeMap<String, usize>) -> Result<usize, String> {
        let atom = |text: &str| {
            text.parse()
                .ok()
                .or_else(|| dims.get(text).copied())
                .ok_or_else(|| format!("{text:?} is neither a number nor one of [dims]"))
        };
        let product = |text: &str| {
            text.split('*')
                .map(|t| atom(t.trim()))
                .product::<Result<usize, _>>()
        };
        match self {
            Extent::Number(n) => Ok(*n),
            Extent::Expression(text) => text.split('+').map(product).sum(),
        }
    }
}

/// Operands that are a model's own, wherever they appear.
const WEIGHTS: [&str; 5] = ["weight", "weight_scale", "table", "a_log", "dt_bias"];

impl FixtureError {
    pub(crate) fn new(path: &Path, message: String) -> FixtureError {
        FixtureError {
            path: path.display().to_string(),
            message,
        }
    }
}

impl Fixture {
    /// Reads one file.
    pub fn load(path: &Path) -> Result<Fixture, FixtureError> {
        let fail = |message: String| FixtureError {
            path: path.display().to_string(),
            message,
        };
        let text = fs::read_to_string(path).map_err(|e| fail(e.to_string()))?;
        let file: File = toml::from_str(&text).map_err(|e| fail(e.to_string()))?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let last = file.launch.last().and_then(|l| l.get("op")?.as_str());
        let subject = match (file.layerlet, last) {
            (Some(layerlet), _) => layerlet.name(),
            (None, Some(op)) => known_operation(op).map_err(fail)?,
            (None, None) => return Err(fail("no [[launch]] with an op".into())),
        };
        Ok(Fixture {
            name: format!("{subject}/{stem}"),
            subject,
            sweep: file.sweep.clone(),
            refused: file.refused.clone(),
            file,
            path: path.to_path_buf(),
        })
    }

    /// Every fixture below a folder, by name.
    pub fn load_all(folder: &Path) -> Result<Vec<Fixture>, FixtureError> {
        let mut paths = Vec::new();
        collect(folder, &mut paths)?;
        paths.sort();
        paths.iter().map(|p| Fixture::load(p)).collect()
    }

    /// The seed that the snapshot pins.
    pub fn seed(&self) -> u64 {
        self.file.seed
    }

    /// The case of a seed.
    pub fn case(&self, seed: u64) -> Result<Case, FixtureError> {
        self.build(&self.file.dims, format!("{} seed {seed}", self.name), seed)
    }

    /// The case of a seed with the swept dimension at `value`.
    pub fn swept(&self, sweep: &Sweep, value: usize) -> Result<Case, FixtureError> {
        let mut dims = self.file.dims.clone();
        if dims.insert(sweep.dim.clone(), value).is_none() {
            return Err(FixtureError {
                path: self.path.display().to_string(),
                message: format!("sweep: {:?} is none of [dims]", sweep.dim),
            });
        }
        let name = format!("{} {} = {value}", self.name, sweep.dim);
        self.build(&dims, name, self.file.seed)
    }

    /// Content of one buffer.
    fn fill(&self, fill: &Fill, decl: &BufferDecl, seed: u64) -> Result<Vec<u8>, String> {
        let Fill::Captured(captured) = fill else {
            return generate(fill, decl, seed);
        };
        let folder = self.path.parent().unwrap_or(Path::new(""));
        external::tensor(&folder.join(&captured.file), &captured.tensor, decl)
            .map_err(|e| e.to_string())
    }

    /// Buffers with one row for each value of the swept dimension.
    pub fn swept_rows(&self, sweep: &Sweep) -> Vec<&str> {
        let by_dim = |recipe: &Recipe| matches!(recipe.shape.first(), Some(Extent::Expression(text)) if *text == sweep.dim);
        let recipes = self.file.buffer.iter().filter(|(_, recipe)| by_dim(recipe));
        recipes.map(|(name, _)| name.as_str()).collect()
    }

    fn build(
        &self,
        dims: &BTreeMap<String, usize>,
        name: String,
        seed: u64,
    ) -> Result<Case, FixtureError> {
        build(self, dims, name, seed).map_err(|message| FixtureError {
            path: self.path.display().to_string(),
            message,
        })
    }
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<(), FixtureError> {
    let fail = |e: std::io::Error| FixtureError {
        path: folder.display().to_string(),
        message: e.to_string(),
    };
    for entry in fs::read_dir(folder).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if path.is_dir() {
            collect(&path, paths)?;
        } else if path.extension().is_some_and(|e| e == "toml") {
            paths.push(path);
        }
    }
    Ok(())
}

fn known_operation(op: &str) -> Result<&'static str, String> {
    OPERATIONS
        .iter()
        .find(|known| **known == op)
        .copied()
        .ok_or_else(|| {
            format!(
                "there is no operation {op:?}; there are {}",
                OPERATIONS.join(", ")
            )
        })
}

fn build(
    fixture: &Fixture,
    dims: &BTreeMap<String, usize>,
    name: String,
    seed: u64,
) -> Result<Case, String> {
    let Fixture { file, subject, .. } = fixture;
    let names: Vec<&str> = file.buffer.keys().map(String::as_str).collect();
    let places: BTreeMap<&str, u32> = names.iter().copied().zip(0..).collect();
    let uses = uses(&launches(file, &places)?, &names)?;
    let roles = names
        .iter()
        .zip(&uses)
        .map(|(name, usage)| file.buffer[*name].role.unwrap_or_else(|| usage.role(name)))
        .collect::<Vec<_>>();
    let of_model = |i: &usize| matches!(roles[*i], Role::Weight | Role::State);
    let (model, local): (Vec<usize>, Vec<usize>) = (0..names.len()).partition(of_model);
    let mut buffers = BufferTable::default();
    let mut places = BTreeMap::new();
    let mut inputs = Vec::new();
    for &i in model.iter().chain(&local) {
        let recipe = &file.buffer[names[i]];
        let shape = recipe
            .shape
            .iter()
            .map(|e| e.value(dims))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| format!("buffer {}: {e}", names[i]))?;
        let decl = BufferDecl {
            name: names[i].into(),
            dtype: uses[i].dtype,
            shape,
            role: roles[i],
        };
        let id = buffers.insert(decl).map_err(|e| e.to_string())?;
        places.insert(names[i], id.0);
        let read = !matches!(roles[i], Role::Scratch | Role::Output);
        match (&recipe.fill, read) {
            (Some(fill), true) => {
                let decl = buffers.get(id).map_err(|e| e.to_string())?;
                let bytes = fixture
                    .fill(fill, decl, seed)
                    .map_err(|e| format!("buffer {}: {e}", names[i]))?;
                inputs.push((id, bytes));
            }
            (None, false) => {}
            (None, true) => return Err(format!("buffer {} is read and has no fill", names[i])),
            (Some(_), false) => return Err(format!("buffer {} is written: no fill", names[i])),
        }
    }
    let stages = launches(file, &places)?;
    let launches = match file.layerlet {
        None => stages,
        Some(layerlet) => vec![Launch::Fused(Fused {
            layerlet,
            stages,
            keep_intermediates: false,
        })],
    };
    let plan = Plan {
        model_buffers: model.len(),
        buffers,
        launches,
    };
    plan.validate().map_err(|e| e.to_string())?;
    Ok(Case {
        name,
        subject,
        plan,
        inputs,
    })
}

/// Builds the launches: every buffer is offered under its own name, and what the file says of an
/// operand or parameter goes before that.
fn launches(file: &File, places: &BTreeMap<&str, u32>) -> Result<Vec<Launch>, String> {
    file.launch
        .iter()
        .map(|table| launch_of(table, places))
        .collect()
}

/// One launch from its table, over buffers of these names.
pub fn launch_of(table: &toml::Table, places: &BTreeMap<&str, u32>) -> Result<Launch, String> {
    let op = table
        .get("op")
        .and_then(toml::Value::as_str)
        .ok_or("a [[launch]] has no op")?;
    known_operation(op)?;
    let mut fields: Map<String, Value> = places
        .iter()
        .map(|(name, place)| (name.to_string(), json!(place)))
        .collect();
    for (key, value) in table.iter().filter(|(key, _)| *key != "op") {
        let named = value.as_str().and_then(|name| places.get(name));
        let value = match named {
            Some(place) => json!(place),
            None => serde_json::to_value(value).map_err(|e| format!("{op}.{key}: {e}"))?,
        };
        fields.insert(key.clone(), value);
    }
    let launch: Launch =
        serde_json::from_value(json!({ variant(op): fields })).map_err(|e| format!("{op}: {e}"))?;
    match launch.name() == op {
        true => Ok(launch),
        false => Err(format!("{op} is called {} in plans", launch.name())),
    }
}

/// `linear_w8a8_partial` is the variant `LinearW8A8Partial` of [`Launch`].
fn variant(op: &str) -> String {
    op.split('_')
        .map(|word| match word {
            "w8a8" => "W8A8".into(),
            word => word[..1].to_uppercase() + &word[1..],
        })
        .collect()
}

struct Usage {
    dtype: DType,
    /// A launch writes it, and it is not state.
    written: bool,
    read: bool,
    state: bool,
}

impl Usage {
    fn role(&self, name: &str) -> Role {
        match self {
            Usage { state: true, .. } => Role::State,
            Usage {
                written: true,
                read: true,
                ..
            } => Role::Scratch,
            Usage { written: true, .. } => Role::Output,
            _ if WEIGHTS.contains(&name) => Role::Weight,
            _ => Role::Step,
        }
    }
}

fn uses(launches: &[Launch], names: &[&str]) -> Result<Vec<Usage>, String> {
    let operands: Vec<_> = launches.iter().flat_map(|l| l.operands()).collect();
    (0..)
        .zip(names)
        .map(|(i, name)| {
            let mine: Vec<_> = operands.iter().filter(|o| o.buffer.0 == i).collect();
            let first = mine
                .first()
                .ok_or_else(|| format!("no launch uses buffer {name}"))?;
            let any = |access| mine.iter().any(|o| o.access == access);
            Ok(Usage {
                dtype: first.dtype,
                written: any(Access::Write),
                read: any(Access::Read),
                state: any(Access::ReadWrite),
            })
        })
        .collect()
}
