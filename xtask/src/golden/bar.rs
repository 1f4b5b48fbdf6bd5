//! How far a run is, on stderr, and only where that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use layerlet_golden::parallel::Progress;
use std::time::Duration;

pub struct Bar(ProgressBar);

impl Bar {
    pub fn new() -> Bar {
        let bar = ProgressBar::no_length();
        let template = "{elapsed_precise} [{bar:30}] {pos}/{len} {msg}";
        bar.set_style(
            ProgressStyle::with_template(template)
                .expect("the template is a constant")
                .progress_chars("=> "),
        );
        bar.enable_steady_tick(Duration::from_millis(100));
        Bar(bar)
    }

    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}

impl Progress for Bar {
    fn total(&self, checks: usize) {
        self.0.set_position(0);
        self.0.set_length(checks as u64);
    }

    fn started(&self, name: &str) {
        self.0.set_message(name.to_string());
    }

    fn finished(&self) {
        self.0.inc(1);
    }
}
