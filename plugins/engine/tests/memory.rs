//! What loading takes on the heap beside the backend's weights.

mod common;

use common::loaded::{fill, prepare};
use common::tiny;
use layerlet_engine::checkpoint::Checkpoint;
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

#[test]
fn loading_holds_no_second_copy_of_the_weights() {
    // Parts of an f32 checkpoint are converted, which takes less than its largest tensors together.
    for (name, share) in [("bf16", 20), ("quark", 20), ("hf", 3)] {
        let checkpoint = Checkpoint::open(&tiny(name)).expect("opens");
        let (layout, mut instance) = prepare(&checkpoint).expect("has memory");
        let table = layout.table();
        let weights: usize = table.iter().map(|(_, d)| d.bytes()).sum();
        let before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
        fill(&checkpoint, &layout, instance.as_mut()).expect("loads");
        let grown = MEMORY.peak_usage() - before;
        assert!(
            grown < weights / share,
            "{name}: {grown} bytes beside {weights} of weights"
        );
    }
}
