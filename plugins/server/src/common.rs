//! What several commands share: which model, on which backend, and the bar that shows its loading.

use crate::error::CommandError;
use indicatif::{ProgressBar, ProgressStyle};
use layerlet_core::backend::Backend;
use layerlet_core::plan::Capacity;
use layerlet_core::reference::Reference;
use layerlet_cpu::{Cpu, Level};
use layerlet_engine::checkpoint::Checkpoint;
use layerlet_engine::{Model, Options};
use layerlet_host::NativePlugin;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

/// Which model, on what.
#[derive(clap::Args)]
pub struct ModelArgs {
    #[command(flatten)]
    pub folder: FolderArgs,
    /// What computes; the bytes are the same
    #[arg(long, value_enum, default_value = "cpu")]
    pub backend: BackendKind,
    /// A backend plugin that computes instead; the bytes are the same
    #[arg(long, value_name = "FILE", conflicts_with = "backend")]
    pub plugin: Option<PathBuf>,
    /// Threads of the CPU backend or plugin [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Run every operation on its own instead of fused kernels; the bytes are the same
    #[arg(long)]
    pub unfused: bool,
}

/// Where the model lies.
#[derive(clap::Args)]
pub struct FolderArgs {
    /// Folder of the checkpoint: config.json, safetensors, tokenizer.json [default: the demo model of
    /// the source tree this was built from]
    #[arg(long, value_name = "DIR", env = "LAYERLET_MODEL")]
    model: Option<PathBuf>,
}

/// The int8 model that the project ships, for the first command on a fresh clone.
const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/models/demo/int8");

impl FolderArgs {
    /// The folder, or how to name one.
    pub fn path(&self) -> Result<PathBuf, CommandError> {
        match &self.model {
            Some(dir) => Ok(dir.clone()),
            None => shipped(Path::new(DEMO)),
        }
    }
}

/// The shipped model, if the source tree that holds it is still there.
fn shipped(demo: &Path) -> Result<PathBuf, CommandError> {
    match demo.is_dir() {
        true => Ok(demo.to_path_buf()),
        false => Err(CommandError::argument(
            "--model",
            format!(
                "none was given, and the demo model is not at {}, where this was built; \
                 give --model DIR or set LAYERLET_MODEL",
                demo.display()
            ),
        )),
    }
}

/// A backend that is built in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum BackendKind {
    /// The definition itself: slow, one thread
    Reference,
    /// All cores, fused kernels, the widest instructions (or those that LAYERLET_CPU names)
    Cpu,
}

impl BackendKind {
    /// Every backend, in order of speed.
    pub const ALL: [BackendKind; 2] = [BackendKind::Cpu, BackendKind::Reference];

    /// Makes it. `LAYERLET_CPU` chooses the instructions of the CPU backend.
    pub fn backend(self, threads: Option<u16>) -> Result<Box<dyn Backend>, CommandError> {
        if self == BackendKind::Reference {
            return Ok(Box::new(Reference));
        }
        let level = Level::from_environment();
        let level = level.map_err(|e| CommandError::argument(layerlet_cpu::LEVEL_VARIABLE, e))?;
        let cpu = threads.map_or_else(Cpu::new, |n| Cpu::with_threads(n.into()));
        Ok(Box::new(cpu.at_level(level)))
    }
}

impl ModelArgs {
    /// How many threads compute.
    pub fn threads(&self) -> usize {
        match self.backend {
            BackendKind::Reference => 1,
            BackendKind::Cpu => self.threads.map_or_else(
                || available_parallelism().map_or(1, usize::from),
                usize::from,
            ),
        }
    }

    /// The plugin's backend, or the one that is built in.
    pub fn make_backend(&self) -> Result<Box<dyn Backend>, CommandError> {
        let Some(path) = &self.plugin else {
            return self.backend.backend(self.threads);
        };
        let options = self.threads.map(|n| format!("threads={n}"));
        let plugin = NativePlugin::load(path)?;
        Ok(Box::new(plugin.backend(&options.unwrap_or_default())?))
    }

    /// Opens the checkpoint; nothing is loaded yet.
    pub fn open(&self) -> Result<Checkpoint, CommandError> {
        Ok(Checkpoint::open(&self.folder.path()?)?)
    }

    /// Loads it with room for one sequence of this many tokens.
    pub fn load(&self, checkpoint: &Checkpoint, tokens: usize) -> Result<Model, CommandError> {
        self.load_with(checkpoint, Options::for_one_sequence(tokens).capacity)
    }

    /// Loads it with so much room.
    pub fn load_with(
        &self,
        checkpoint: &Checkpoint,
        capacity: Capacity,
    ) -> Result<Model, CommandError> {
        self.load_on(checkpoint, capacity, self.make_backend()?.as_ref())
    }

    /// Loads it on this backend.
    pub fn load_on(
        &self,
        checkpoint: &Checkpoint,
        capacity: Capacity,
        backend: &dyn Backend,
    ) -> Result<Model, CommandError> {
        let (needed, most) = (capacity.max_positions, checkpoint.config.model.max_position);
        if needed > most {
            let problem = format!("{needed} positions are needed, the model has {most}");
            return Err(CommandError::argument("the request", problem));
        }
        let options = Options {
            fused: !self.unfused,
            capacity,
        };
        let bar = bytes_bar("loading");
        let model = Model::load(checkpoint, backend, &options, |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        })?;
        bar.finish_and_clear();
        Ok(model)
    }
}

/// A bar over bytes, on stderr and only where that is a terminal.
pub fn bytes_bar(what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(0);
    let template = "{msg} {wide_bar} {binary_bytes}/{binary_total_bytes} {eta}";
    let style = ProgressStyle::with_template(template).expect("the template is a constant");
    bar.set_style(style);
    bar.set_message(what);
    bar
}

#[cfg(test)]
mod tests {
    use super::shipped;

    #[test]
    fn without_the_source_tree_a_model_must_be_named() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(shipped(folder.path()).unwrap(), folder.path());
        let gone = folder.path().join("int8");
        let error = shipped(&gone).unwrap_err().to_string();
        for fragment in [&*gone.display().to_string(), "--model", "LAYERLET_MODEL"] {
            assert!(error.contains(fragment), "no {fragment:?} in {error}");
        }
    }
}
