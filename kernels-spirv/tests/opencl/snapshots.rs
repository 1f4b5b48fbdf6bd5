//! Each kernel of `in/` against the assembly in `out/`, and before the validator. `LAYERLET_BLESS=1` writes `out/`.

use crate::kernels::{KERNELS, folder, kernel};
use layerlet_kernels::opencl::Kernel;
use rspirv::binary::Disassemble;
use std::io::Write;
use std::process::{Command, Stdio};

fn text(kernel: &Kernel) -> String {
    let module = rspirv::dr::load_words(&kernel.words).expect("the writer's words are a module");
    format!("; {:#?}\n", kernel.interface)
        .replace('\n', "\n; ")
        .trim_end_matches("; ")
        .to_owned()
        + &module.disassemble()
        + "\n"
}

#[test]
fn the_assembly_is_the_recorded_one() {
    let bless = std::env::var_os("LAYERLET_BLESS").is_some();
    let mut changed = Vec::new();
    for (name, _) in KERNELS {
        let path = folder().join("out").join(format!("{name}.spvasm"));
        let written = text(&kernel(name));
        if bless {
            std::fs::write(&path, &written).expect("the snapshot can be written");
        }
        if std::fs::read_to_string(&path).unwrap_or_default() != written {
            changed.push(name);
        }
    }
    assert!(
        changed.is_empty(),
        "{changed:?} changed: see the diff with LAYERLET_BLESS=1"
    );
}

#[test]
fn every_input_is_listed() {
    let mut found: Vec<String> = std::fs::read_dir(folder().join("in"))
        .expect("the folder of inputs")
        .map(|entry| {
            entry
                .expect("an entry")
                .path()
                .file_stem()
                .unwrap()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    found.sort();
    assert_eq!(found, KERNELS.map(|(name, _)| name.to_owned()));
}

/// What `spirv-val` says of a module; nothing if it is valid.
pub fn validate(words: &[u32]) -> Result<(), String> {
    let mut child = Command::new("spirv-val")
        .args(["--target-env", "opencl2.2", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| {
            format!("spirv-val (of spirv-tools; `cargo xtask test --setup` installs it): {e}")
        })?;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(&bytes)
        .map_err(|e| format!("spirv-val: {e}"))?;
    let output = child
        .wait_with_output()
        .map_err(|e| format!("spirv-val: {e}"))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            Err(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
        }
    }
}

#[test]
fn every_module_is_valid_for_opencl() {
    for (name, _) in KERNELS {
        validate(&kernel(name).words).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

#[test]
fn the_validator_has_teeth() {
    let mut words = kernel("floats").words;
    // Without its first capability the module may not be a kernel.
    assert_eq!(words[5], 2 << 16 | 17);
    words.drain(5..7);
    assert!(validate(&words).is_err());
}

/// No contraction, no reassociation, in every module.
#[test]
fn nothing_may_be_fused() {
    for (name, _) in KERNELS {
        let text = text(&kernel(name));
        assert!(text.contains("ContractionOff"), "{name}");
        for word in ["FPFastMathMode", " fma ", " mad "] {
            assert!(!text.contains(word), "{name} has{word}");
        }
    }
}
