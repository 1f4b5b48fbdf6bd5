//! The output folder, which looks like a checkpoint only once it is one.
//!
//! Everything is written to a folder inside it and moved out at the end, `config.json` last: without
//! that no loader opens it. A run that fails removes what it wrote; of one that was killed the inner
//! folder stays, and the next run refuses by its name. A sibling to be renamed as a whole would not
//! do: the output may be a mounted volume.
//!
//! Invariant: where the folder has a `config.json` of ours, everything else is in place.

use super::OutputError;
use std::path::{Path, PathBuf};

/// Name of the folder that holds unfinished output.
const UNFINISHED: &str = "unfinished";
/// The file that makes the folder a checkpoint.
const LAST: &str = "config.json";

/// An output folder that is being filled.
pub struct Staging {
    to: PathBuf,
    inner: PathBuf,
    /// Folders that did not exist before, innermost first.
    created: Vec<PathBuf>,
    finished: bool,
}

impl Staging {
    /// Takes a folder that is new or empty.
    pub fn new(to: &Path) -> Result<Staging, OutputError> {
        let inner = to.join(UNFINISHED);
        let missing = |p: &&Path| !p.as_os_str().is_empty() && !p.exists();
        let created = to.ancestors().take_while(missing);
        let created = created.map(Path::to_path_buf).collect();
        std::fs::create_dir_all(to).map_err(|e| OutputError::new(to, e))?;
        let mut entries = std::fs::read_dir(to).map_err(|e| OutputError::new(to, e))?;
        if inner.exists() {
            let problem = "an earlier run did not finish; remove the folder to start again";
            return Err(OutputError::new(&inner, problem));
        }
        if entries.next().is_some() {
            return Err(OutputError::new(to, "the folder is not empty"));
        }
        std::fs::create_dir(&inner).map_err(|e| OutputError::new(&inner, e))?;
        Ok(Staging {
            to: to.into(),
            inner,
            created,
            finished: false,
        })
    }

    /// Where to write.
    pub fn path(&self) -> &Path {
        &self.inner
    }

    /// Moves everything to its place.
    pub fn finish(mut self) -> Result<(), OutputError> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.inner).map_err(|e| OutputError::new(&self.inner, e))? {
            names.push(
                entry
                    .map_err(|e| OutputError::new(&self.inner, e))?
                    .file_name(),
            );
        }
        names.sort_by_key(|name| name == LAST);
        for name in names {
            let target = self.to.join(&name);
            std::fs::rename(self.inner.join(&name), &target)
                .map_err(|e| OutputError::new(&target, e))?;
        }
        self.finished = true;
        std::fs::remove_dir(&self.inner).map_err(|e| OutputError::new(&self.inner, e))
    }
}

impl Drop for Staging {
    /// Best effort: the error that led here is the one to report.
    fn drop(&mut self) {
        if !self.finished {
            let _ = std::fs::remove_dir_all(&self.inner);
            for folder in &self.created {
                let _ = std::fs::remove_dir(folder);
            }
        }
    }
}
