//! The kernels of `in/`, compiled.

use layerlet_kernels::opencl::{Error, Kernel, Options, write};
use naga::valid::{Capabilities, ValidationFlags, Validator};
use std::path::{Path, PathBuf};

/// Name and the subgroup size that it is compiled for.
pub const KERNELS: [(&str, Option<u32>); 7] = [
    ("atomics", None),
    ("control", None),
    ("floats", None),
    ("integers", None),
    ("reduce", None),
    ("structs", None),
    ("subgroups", Some(16)),
];

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/opencl")
}

/// The kernel `in/<name>.wgsl`, whose entry point has the same name.
pub fn kernel(name: &str) -> Kernel {
    let path = folder().join("in").join(format!("{name}.wgsl"));
    let source =
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let (_, subgroup_size) = *KERNELS
        .iter()
        .find(|(known, _)| *known == name)
        .expect("a name of the list");
    compile(&source, name, subgroup_size).unwrap_or_else(|e| panic!("{name}: {e}"))
}

pub fn compile(source: &str, entry: &str, subgroup_size: Option<u32>) -> Result<Kernel, Error> {
    let module = naga::front::wgsl::parse_str(source)
        .unwrap_or_else(|e| panic!("{}", e.emit_to_string(source)));
    let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
    let info = validator
        .validate(&module)
        .unwrap_or_else(|e| panic!("{}", e.emit_to_string(source)));
    let point = Some((naga::ShaderStage::Compute, entry));
    let (module, info) = naga::back::pipeline_constants::process_overrides(
        &module,
        &info,
        point,
        &Default::default(),
    )
    .expect("every override has a default");
    write(&module, &info, entry, &Options { subgroup_size })
}
