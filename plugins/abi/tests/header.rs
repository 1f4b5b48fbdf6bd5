//! The header and the Rust types are one layout: a C compiler says so.

use layerlet_abi::{ABI, Bytes, FAILED, OF_MODEL, OF_PLAN, OK, Place, Plugin, REFUSED, Sink};
use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;

macro_rules! layouts {
    ($text:ident, $($c:literal = $rust:ty { $($field:ident),* }),*) => {$(
        let size = size_of::<$rust>();
        writeln!($text, "_Static_assert(sizeof({}) == {size}, \"size\");", $c).unwrap();
        $(
            let (name, at) = (stringify!($field), offset_of!($rust, $field));
            writeln!($text, "_Static_assert(offsetof({}, {name}) == {at}, \"{name}\");", $c).unwrap();
        )*
    )*};
}

fn compiles(name: &str, text: &str) -> bool {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = folder.join(name);
    std::fs::write(&source, text).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let status = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Werror", "-fsyntax-only", "-I"])
        .args([&include, &source])
        .stderr(std::process::Stdio::null())
        .status();
    status
        .expect("a C compiler, as the linker of Rust needs one")
        .success()
}

#[test]
fn c_and_rust_agree() {
    let mut text = String::from("#include \"layerlet_plugin.h\"\n");
    layouts!(
        text,
        "layerlet_bytes" = Bytes { data, len },
        "layerlet_sink" = Sink { context, take },
        "layerlet_place" = Place {
            owner,
            plan,
            buffer
        },
        "layerlet_plugin_v1" = Plugin {
            abi,
            plan_format,
            target,
            create,
            destroy,
            capabilities,
            open,
            close,
            write,
            read,
            prepare,
            run,
            poison
        }
    );
    let numbers = [
        ("LAYERLET_ABI", ABI as i64),
        ("LAYERLET_OK", OK.into()),
        ("LAYERLET_REFUSED", REFUSED.into()),
        ("LAYERLET_FAILED", FAILED.into()),
        ("LAYERLET_OF_MODEL", OF_MODEL.into()),
        ("LAYERLET_OF_PLAN", OF_PLAN.into()),
    ];
    for (name, value) in numbers {
        writeln!(text, "_Static_assert({name} == {value}, \"{name}\");").unwrap();
    }
    assert!(compiles("agree.c", &text), "{text}");
    // The check has teeth: a layout that is off by one word does not compile.
    let wrong = text.replace(
        "offsetof(layerlet_plugin_v1, run) == ",
        "offsetof(layerlet_plugin_v1, run) == 8 + ",
    );
    assert_ne!(wrong, text);
    assert!(!compiles("disagree.c", &wrong));
}
