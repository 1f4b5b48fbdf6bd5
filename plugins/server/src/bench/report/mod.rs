//! `--report DIR`: the numbers as `report.json`, and a page that shows them.

mod charts;
mod page;
mod roofline;
mod shares;

use super::Report;
use crate::error::CommandError;
use std::fs;
use std::path::Path;

/// Refuses a folder that cannot be written, before anything is measured.
pub fn prepare(dir: &Path) -> Result<(), CommandError> {
    fs::create_dir_all(dir).map_err(|e| CommandError::file(dir, e))
}

/// Writes `report.json` and `index.html`, which needs no other file.
pub fn write(dir: &Path, model: &Path, report: &Report) -> Result<(), CommandError> {
    let json = serde_json::to_string_pretty(report).map_err(std::io::Error::from);
    let json = json.map_err(|e| CommandError::file(dir, e))?;
    let name = model.file_name().unwrap_or(model.as_os_str());
    let page = page::page(&name.to_string_lossy(), report)?;
    for (file, text) in [("report.json", json), ("index.html", page)] {
        let path = dir.join(file);
        fs::write(&path, text).map_err(|e| CommandError::file(&path, e))?;
    }
    Ok(())
}
