//! A loaded checkpoint leaves nothing of its files in memory.
#![cfg(target_os = "linux")]

mod common;

use common::loaded::{fill, prepare};
use common::tiny;
use layerlet_engine::checkpoint::Checkpoint;

/// Bytes of a mapped file that are in memory now.
fn resident(file: &str) -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("Linux has it");
    let mut inside = false;
    let mut kib = 0;
    for line in maps.lines() {
        // A mapping starts with its addresses and flags and ends with its path; sizes follow.
        if line
            .split_whitespace()
            .nth(1)
            .is_some_and(|flags| flags.len() == 4)
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
    for name in ["hf", "bf16"] {
        let folder = tiny(name);
        let file = folder
            .join("model.safetensors")
            .canonicalize()
            .expect("the fixture");
        let size = file.metadata().expect("the fixture").len() as usize;
        let checkpoint = Checkpoint::open(&folder).expect("opens");
        let (layout, mut instance) = prepare(&checkpoint).expect("has memory");
        fill(&checkpoint, &layout, instance.as_mut()).expect("loads");
        let left = resident(&file.display().to_string());
        // The kernel maps a few pages around the last one that was read.
        assert!(
            left > 0 && left < size / 2,
            "{name}: {left} of {size} bytes are mapped in"
        );
    }
}
