//! The target that a plugin or a host is built for.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = std::env::var("TARGET").expect("cargo sets it");
    println!("cargo::rustc-env=LAYERLET_TARGET={target}");
}
