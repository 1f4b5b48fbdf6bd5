//! A loaded checkpoint leaves nothing of its files in memory.
#![cfg(target_os = "linux")]

mod common;

use common::loaded::{MADE, prepare};
use layerlet_engine::checkpoint::Checkpoint;
use std::path::PathBuf;

/// The trained model: its tensors are larger than what the kernel maps in around one that is read.
fn demo(name: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../golden/models/demo");
    root.join(name)
}

/// Bytes of a mapped file that are in memory now.
fn resident(file: &str) -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("Linux has it");
    let mut inside = false;
    let mut kib = 0;
    for line in maps.lines() {
        // A mapping starts with its addresses and flags and ends with its path; sizes follow.
        if line
            .split(' ')
            .next()
            .is_some_and(|addresses| addresses.contains('-'))
        {
            inside = line.ends_with(file);
        } else if let Some(size) = line.strip_prefix("Rss:").filter(|_| inside) {
            let size = size.trim_end_matches("kB").trim();
            kib += size.parse::<usize>().expect("a number");
        }
    }
    1024 * kib
}

#[test]
fn what_was_copied_is_given_back() {
    for name in ["bf16", "int8"] {
        let folder = demo(name);
        let file = folder
            .join("model.safetensors")
            .canonicalize()
            .expect("the fixture");
        let size = file.metadata().expect("the fixture").len() as usize;
        let checkpoint = Checkpoint::open(&folder).expect("opens");
        let name = file.display().to_string();
        // The header was read, which shows that reading shows.
        assert!(resident(&name) > 0);
        let (layout, mut instance) = prepare(&checkpoint).expect("has memory");
        let mut peak = 0;
        let watch = |_| peak = peak.max(resident(&name));
        checkpoint
            .load(layout.table(), &[MADE], instance.as_mut(), watch)
            .expect("loads");
        // The kernel maps in a few megabytes around what is read, never the whole file.
        assert!(peak < size / 10 * 9, "{peak} of {size} bytes at once");
        assert_eq!(resident(&name), 0, "{name}");
    }
}
