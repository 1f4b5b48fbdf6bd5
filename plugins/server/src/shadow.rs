//! Flags of shadow verification, and what is said of it.

use crate::error::CommandError;
use layerlet_core::backend::Backend;
use layerlet_engine::shadow::{Handle, Policy, Settings, Shadow, Share, Stats};
use std::path::PathBuf;

/// Which launches the reference runs again, and what a difference leads to.
#[derive(clap::Args)]
#[command(next_help_heading = "Shadow verification")]
pub struct ShadowArgs {
    /// Part of the launches that the reference runs again to compare the bytes, such as 1/1000
    #[arg(long, value_name = "SHARE")]
    shadow: Option<Share>,
    /// What happens after a difference
    #[arg(long, value_enum, default_value = "log", requires = "shadow")]
    shadow_policy: PolicyKind,
    /// Where launches that differed go, as files for `cargo xtask golden --fixture`
    #[arg(
        long,
        value_name = "DIR",
        default_value = "layerlet-shadow",
        requires = "shadow"
    )]
    shadow_dir: PathBuf,
    /// Copies of launches that may wait to be checked, in MiB; more are let go and counted
    #[arg(long, value_name = "MIB", default_value_t = 1024, requires = "shadow")]
    shadow_memory: u32,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum PolicyKind {
    /// Say so, and go on
    Log,
    /// Let the reference run that kernel's launches from then on
    Fallback,
    /// End with an error
    Stop,
}

impl ShadowArgs {
    /// The backend as it is, or watched.
    pub fn watch(&self, backend: Box<dyn Backend>) -> (Box<dyn Backend>, Option<Handle>) {
        let Some(share) = self.shadow else {
            return (backend, None);
        };
        let settings = Settings {
            share,
            policy: match self.shadow_policy {
                PolicyKind::Log => Policy::Log,
                PolicyKind::Fallback => Policy::Fallback,
                PolicyKind::Stop => Policy::Stop,
            },
            folder: self.shadow_dir.clone(),
            memory: (self.shadow_memory as usize) << 20,
            seed: 0,
        };
        let shadow = Shadow::new(backend, settings, |alarm| eprintln!("{alarm}"));
        let handle = shadow.handle();
        (Box::new(shadow), Some(handle))
    }
}

/// Waits for what is still unchecked, and says what came of all.
pub fn conclude(handle: Option<&Handle>) -> Result<(), CommandError> {
    let Some(handle) = handle else {
        return Ok(());
    };
    let stats = handle.wait();
    eprintln!("{}", summary(&stats));
    match stats.mismatches {
        0 => Ok(()),
        mismatches => Err(CommandError::Shadow { mismatches }),
    }
}

fn summary(stats: &Stats) -> String {
    let Stats {
        launches,
        checked,
        mismatches,
        dropped,
        too_large,
        replaced,
        ..
    } = stats;
    let mut text = format!("shadow: {checked} of {launches} launches checked, {mismatches} differ");
    let rest = [
        (dropped, "let go because too many waited"),
        (too_large, "larger than --shadow-memory"),
        (replaced, "run by the reference instead"),
    ];
    for (count, what) in rest.iter().filter(|(count, _)| **count > 0) {
        text += &format!(", {count} {what}");
    }
    text
}
