//! The bindings beside the installed headers: one C program states every claim as a static assertion.

use level_zero_sys::{CONSTANTS, Constant, LAYOUTS, LIMITS, Layout, SIGNATURES, Signature, TABLES};
use std::fmt::Write;
use std::process::Command;

fn constant(c: &Constant) -> String {
    format!(
        "_Static_assert((uint64_t){} == {}u, \"{}\");\n",
        c.name, c.value, c.name
    )
}

fn layout(l: &Layout) -> String {
    let name = l.name;
    let mut text = format!(
        "_Static_assert(sizeof({name}) == {}, \"size of {name}\");\n",
        l.size
    );
    let _ = writeln!(
        text,
        "_Static_assert(_Alignof({name}) == {}, \"alignment of {name}\");",
        l.align
    );
    for (field, offset, size) in l.fields {
        let field = field.trim_end_matches('_');
        let _ = writeln!(
            text,
            "_Static_assert(offsetof({name}, {field}) == {offset} && sizeof((({name} *)0)->{field}) == {size}, \
             \"{name}.{field}\");"
        );
    }
    text
}

/// C's spelling of a type in Rust's.
fn c_type(rust: &str) -> String {
    if let Some(to) = rust.strip_prefix("*mut ") {
        return format!("{}*", c_type(to));
    }
    if let Some(to) = rust.strip_prefix("*const ") {
        return format!("const {}*", c_type(to));
    }
    let c = match rust {
        "u8" => "uint8_t",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        "usize" => "size_t",
        "c_void" => "void",
        "c_char" => "char",
        other => other,
    };
    c.to_string()
}

fn signature(s: &Signature) -> String {
    let parameters: Vec<String> = s.parameters.iter().map(|p| c_type(p)).collect();
    format!(
        "_Static_assert(__builtin_types_compatible_p(__typeof__({0}), ze_result_t({1})), \"signature of {0}\");\n",
        s.name,
        parameters.join(", ")
    )
}

/// What the compiler says of a program of these claims; nothing if it accepts them.
fn compile(claims: &str) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("probe.c");
    let text = format!(
        "#include <stddef.h>\n#include <stdint.h>\n#include <level_zero/ze_api.h>\n#include <level_zero/ze_ddi.h>\n\
         #include <level_zero/zes_api.h>\n#include <level_zero/zes_ddi.h>\n{claims}"
    );
    std::fs::write(&file, text).expect("the probe is written");
    let output = Command::new("cc")
        .args(["-std=gnu11", "-fsyntax-only"])
        .arg(&file)
        .output()
        .expect("a C compiler; `cargo xtask test --setup` says what the tests need");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn every_constant_layout_and_signature_is_the_headers() {
    let mut claims = String::new();
    claims.extend(CONSTANTS.iter().chain(LIMITS).map(constant));
    claims.extend(LAYOUTS.iter().chain(TABLES).map(layout));
    claims.extend(SIGNATURES.iter().map(signature));
    let errors = compile(&claims);
    assert!(errors.is_empty(), "{errors}");
}

#[test]
fn a_wrong_value_offset_size_or_parameter_is_seen() {
    let mut wrong = Layout {
        name: "ze_group_count_t",
        size: 12,
        align: 4,
        fields: &[("groupCountZ", 4, 4)],
    };
    let offset = compile(&layout(&wrong));
    assert!(offset.contains("ze_group_count_t.groupCountZ"), "{offset}");
    wrong.size = 16;
    let size = compile(&layout(&wrong));
    assert!(size.contains("size of ze_group_count_t"), "{size}");
    let value = compile(&constant(&Constant {
        name: "ZE_RESULT_NOT_READY",
        value: 2,
    }));
    assert!(value.contains("ZE_RESULT_NOT_READY"), "{value}");
    let parameter = compile(&signature(&Signature {
        name: "zeMemFree",
        parameters: &["ze_context_handle_t", "*const c_void"],
    }));
    assert!(parameter.contains("signature of zeMemFree"), "{parameter}");
}

#[test]
fn a_missing_loader_is_named() {
    let path = std::path::PathBuf::from("/nowhere/libze_loader.so.1");
    let Err(error) = level_zero_sys::Api::open_at(path) else {
        panic!("opened a loader that is not there");
    };
    let text = error.to_string();
    assert!(
        text.contains("/nowhere/libze_loader.so.1") && text.contains("libze1"),
        "{text}"
    );
}

#[test]
fn the_installed_loader_has_every_function() {
    level_zero_sys::Api::open().expect("the installed loader");
}
