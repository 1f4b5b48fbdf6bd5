//! Every kernel compiles, passes spirv-val, and is strict.

use layerlet_kernels::module::{Kernel, KernelError};
use layerlet_kernels::source::{KERNELS, compose};
use layerlet_kernels::strict::{Controls, Strict};
use rspirv::spirv::{Decoration, Op};
use std::io::Write;
use std::process::{Command, Stdio};

/// A kernel with one small number for each override that has no value of its own.
fn sample(name: &'static str) -> Kernel {
    let text = compose(name).unwrap();
    let required = text.lines().filter_map(|line| {
        let declared = line.strip_prefix("override ")?.strip_suffix(';')?;
        (!declared.contains('=')).then(|| declared.split(':').next().unwrap().to_string())
    });
    required.fold(Kernel::new(name), |kernel, name| {
        kernel.with(name.leak(), 8)
    })
}

const ALL: Controls = Controls {
    signed_zero_inf_nan: true,
    denorm_preserve: true,
};

#[test]
fn every_kernel_passes_spirv_val() {
    for &(name, _) in KERNELS {
        let strict = Strict::compile(&sample(name), ALL).unwrap_or_else(|e| panic!("{e}"));
        let mut child = Command::new("spirv-val")
            .args(["--target-env", "vulkan1.1"])
            .stdin(Stdio::piped())
            .spawn()
            .expect("spirv-val is one of the tools that `cargo xtask test --setup` installs");
        let bytes: Vec<u8> = strict
            .words()
            .iter()
            .flat_map(|w| w.to_le_bytes())
            .collect();
        child.stdin.take().unwrap().write_all(&bytes).unwrap();
        assert!(child.wait().unwrap().success(), "{name}");
    }
}

/// Minima, maxima, clamps and bit scans of integers, and the clamp with which naga saturates a conversion to u32 (the
/// division's, whose argument is far inside): all of GLSL's library that a kernel may use, since little there that takes
/// a float is exact on every device.
const EXACT: [u32; 10] = [38, 39, 41, 42, 43, 44, 45, 73, 74, 75];

#[test]
fn no_float_result_may_be_contracted() {
    let mut rounded = 0;
    for &(name, _) in KERNELS {
        let strict = Strict::compile(&sample(name), Controls::default()).unwrap();
        let module = rspirv::dr::load_words(strict.words()).unwrap();
        let guarded: Vec<u32> = module
            .annotations
            .iter()
            .filter(|i| {
                i.operands.get(1).is_some_and(|o| {
                    *o == rspirv::dr::Operand::Decoration(Decoration::NoContraction)
                })
            })
            .map(|i| i.operands[0].unwrap_id_ref())
            .collect();
        for i in module.all_inst_iter() {
            if matches!(
                i.class.opcode,
                Op::FAdd | Op::FSub | Op::FMul | Op::FDiv | Op::FNegate
            ) {
                assert!(guarded.contains(&i.result_id.unwrap()), "{name}: {i:?}");
                rounded += 1;
            }
            if i.class.opcode == Op::ExtInst {
                let rspirv::dr::Operand::LiteralExtInstInteger(number) = i.operands[1] else {
                    panic!("{name}: {i:?}");
                };
                assert!(EXACT.contains(&number), "{name}: {i:?}");
            }
        }
    }
    assert!(rounded > 200, "{rounded}");
}

#[test]
fn the_same_kernel_has_the_same_digest_and_other_constants_another() {
    let digest = |n| {
        let kernel = Kernel::new("linear_bf16").with("N", n).with("K", 32);
        Strict::compile(&kernel, ALL).unwrap().digest()
    };
    assert_eq!(digest(16), digest(16));
    assert_ne!(digest(16), digest(17));
}

#[test]
fn what_cannot_be_built_says_why() {
    let error = Strict::compile(&Kernel::new("no_such"), ALL).unwrap_err();
    assert_eq!(
        error,
        KernelError::NoSuchSource {
            name: "no_such".into()
        }
    );
    let error = Strict::compile(&Kernel::new("linear_bf16"), ALL).unwrap_err();
    assert!(
        error.to_string().starts_with("linear_bf16: constants: "),
        "{error}"
    );
    let kernel = Kernel::new("argmax").with("N", 8).with("COLOUR", 1);
    let error = Strict::compile(&kernel, ALL).unwrap_err();
    assert!(error.to_string().contains("COLOUR"), "{error}");
}
