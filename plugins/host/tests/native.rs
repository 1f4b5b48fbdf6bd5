//! The CPU backend as a shared library: its bytes, and what is refused.

use layerlet_core::backend::Backend;
use layerlet_core::reference::Reference;
use layerlet_cpu::Cpu;
use layerlet_golden::checks::fixtures::{Scope, check};
use layerlet_golden::fixture::Fixture;
use layerlet_host::NativePlugin;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Cargo puts the libraries that a test depends on beside it.
fn cpu_plugin() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let name = format!(
        "{}layerlet_native_cpu{}",
        std::env::consts::DLL_PREFIX,
        std::env::consts::DLL_SUFFIX
    );
    test.parent().unwrap().join(name)
}

fn load_error(path: &Path) -> String {
    match NativePlugin::load(path) {
        Ok(_) => panic!("{} was loaded", path.display()),
        Err(error) => error.to_string(),
    }
}

#[test]
fn every_fixture_gives_the_references_bytes_through_the_c_abi() {
    let plugin = NativePlugin::load(&cpu_plugin()).unwrap();
    let backend = plugin.backend("threads=2\ninline_below=0").unwrap();
    assert_eq!(backend.identity(), Cpu::new().identity());
    assert_eq!(backend.layerlets(), Cpu::new().layerlets());
    let scope = Scope {
        backends: &[&backend],
        seeds: 1,
        shift: 0,
        pins: None,
        sweep: false,
        wording: true,
    };
    let fixtures = Fixture::load_all(&layerlet_golden::folder().join("fixtures")).unwrap();
    let mut cases = 0;
    for fixture in &fixtures {
        let report = check(fixture, &scope).unwrap();
        let mismatches: Vec<String> = report.mismatches.iter().map(|m| m.to_string()).collect();
        assert!(mismatches.is_empty(), "{}", mismatches.join("\n"));
        cases += report
            .rows
            .iter()
            .filter(|r| r.backend == "cpu")
            .map(|r| r.cases)
            .sum::<usize>();
    }
    assert!(cases > fixtures.len(), "{cases} cases ran on the plugin");
}

#[test]
fn what_is_wrong_with_an_option_is_said() {
    let plugin = NativePlugin::load(&cpu_plugin()).unwrap();
    for (options, fragment) in [
        ("treads=2", "treads"),
        ("threads=two", "two"),
        ("level=sse9", "sse9"),
    ] {
        let Err(error) = plugin.backend(options) else {
            panic!("{options} was taken");
        };
        assert!(error.to_string().contains(fragment), "{error}");
    }
}

#[test]
fn instances_outlive_plugin_and_backend_and_say_what_is_out_of_range() {
    use layerlet_core::backend::Place;
    use layerlet_core::buffer::{BufferId, BufferTable, Role};
    let mut table = BufferTable::default();
    table.declare::<f32>("weight", &[4], Role::Weight).unwrap();
    let mut mine = Reference.open(&table).unwrap();
    let plugin = NativePlugin::load(&cpu_plugin()).unwrap();
    let mut instance = plugin.backend("").unwrap().open(&table).unwrap();
    drop(plugin);
    let place = Place::Model(BufferId(0));
    instance.write(place, 4, &[1, 2, 3, 4]).unwrap();
    let mut bytes = [9; 16];
    instance.read(place, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0]);
    let theirs = instance.write(place, 13, &[0; 4]).unwrap_err().to_string();
    let ours = mine.write(place, 13, &[0; 4]).unwrap_err().to_string();
    assert!(theirs.contains(&ours), "{theirs} does not say {ours}");
}

/// A library in C with the header: what it says of itself is refused for the reason given.
fn c_plugin(folder: &Path, name: &str, fields: &str) -> PathBuf {
    let source = folder.join(format!("{name}.c"));
    let text = format!(
        "#include \"layerlet_plugin.h\"\nstatic const layerlet_plugin_v1 p = {{ {fields} }};\n\
         const layerlet_plugin_v1 *layerlet_plugin(void) {{ return &p; }}\n"
    );
    std::fs::write(&source, text).unwrap();
    let library = folder.join(format!("{name}.so"));
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../abi/include");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-I"]).arg(include);
    let status = compiler.arg(&source).arg("-o").arg(&library).status();
    assert!(
        status
            .expect("a C compiler, as the linker of Rust needs one")
            .success()
    );
    library
}

#[test]
fn another_abi_format_or_target_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let target = |t: &str| format!("{{ (const uint8_t *)\"{t}\", {} }}", t.len());
    let here = target(layerlet_abi::TARGET);
    for (name, fields, fragments) in [
        (
            "abi",
            format!("7, 1, {here}"),
            ["plugin ABI 7", "this host has 1"],
        ),
        (
            "format",
            format!("1, 99, {here}"),
            ["plans of format 99", "this host has 1"],
        ),
        (
            "target",
            format!(
                "1, {}, {}",
                layerlet_core::plan::PLAN_VERSION,
                target("riscv64-none")
            ),
            ["built for riscv64-none", layerlet_abi::TARGET],
        ),
    ] {
        let error = load_error(&c_plugin(folder.path(), name, &fields));
        for fragment in fragments {
            assert!(error.contains(fragment), "no {fragment:?} in {error}");
        }
    }
}

#[test]
fn what_is_no_plugin_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text.so");
    std::fs::write(&text, "no library").unwrap();
    assert!(load_error(&text).contains("text.so"));
    assert!(load_error(&folder.path().join("none.so")).contains("none.so"));
    let source = folder.path().join("other.c");
    std::fs::write(&source, "int other(void) { return 1; }").unwrap();
    let library = folder.path().join("other.so");
    let status = Command::new("cc")
        .arg("-shared")
        .arg(&source)
        .arg("-o")
        .arg(&library)
        .status();
    assert!(status.unwrap().success());
    assert!(load_error(&library).contains("exports no layerlet_plugin"));
}
