//! A route: which experts each token of a step goes to, and with which weights. One JSON object a line:
//!
//! ```json
//! {"layer": 3, "topk_ids": [[7, 0], [2, 5]], "topk_weights": [[0.6, 0.4], [0.9, 0.1]]}
//! ```
//!
//! An id of -1 stands for a pair that goes nowhere. `experts` (else one more than the largest id) and
//! `row_scale` (magnitude of each token's hidden state, else 1) may be given.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Experts that a route may have.
const MAX_EXPERTS: usize = 4096;

/// The routes of one layer in one step.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Where it was captured.
    pub layer: u32,
    /// Experts of the layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experts: Option<usize>,
    /// `[tokens][k]`, best first.
    pub topk_ids: Vec<Vec<i64>>,
    /// `[tokens][k]`.
    pub topk_weights: Vec<Vec<f32>>,
    /// `[tokens]`, or empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub row_scale: Vec<f32>,
}

/// What is wrong with a file of routes.
#[derive(Debug, thiserror::Error)]
#[error("{}{}: {message}", path.display(), line.map(|n| format!(":{n}")).unwrap_or_default())]
pub struct RouteError {
    path: PathBuf,
    line: Option<usize>,
    message: String,
}

impl Route {
    /// Number of tokens.
    pub fn tokens(&self) -> usize {
        self.topk_ids.len()
    }

    /// Experts of each token.
    pub fn k(&self) -> usize {
        self.topk_ids.first().map_or(1, Vec::len)
    }

    /// Experts of the layer.
    pub fn experts(&self) -> usize {
        let ids = self.topk_ids.iter().flatten();
        let largest = ids.max().copied().unwrap_or(-1);
        self.experts
            .unwrap_or(largest.saturating_add(1).max(1) as usize)
    }

    /// Magnitude of a token's hidden state.
    pub fn scale(&self, token: usize) -> f32 {
        self.row_scale.get(token).copied().unwrap_or(1.0)
    }

    /// Parses one line and checks that its parts fit.
    pub fn parse(line: &str) -> Result<Route, String> {
        let route: Route = serde_json::from_str(line).map_err(|e| e.to_string())?;
        route.check()?;
        Ok(route)
    }

    fn check(&self) -> Result<(), String> {
        let (tokens, k, experts) = (self.tokens(), self.k(), self.experts());
        if k == 0 || experts == 0 || experts > MAX_EXPERTS {
            return Err(format!(
                "{k} experts a token of {experts}, expected at least 1 of 1 to {MAX_EXPERTS}"
            ));
        }
        if self.topk_weights.len() != tokens {
            let found = self.topk_weights.len();
            return Err(format!(
                "topk_weights has {found} tokens, topk_ids {tokens}"
            ));
        }
        if !self.row_scale.is_empty() && self.row_scale.len() != tokens {
            let found = self.row_scale.len();
            return Err(format!("row_scale has {found} tokens, topk_ids {tokens}"));
        }
        for (t, (ids, weights)) in self.topk_ids.iter().zip(&self.topk_weights).enumerate() {
            if ids.len() != k || weights.len() != k {
                let (ids, weights) = (ids.len(), weights.len());
                return Err(format!(
                    "token {t} has {ids} ids and {weights} weights, expected {k} as token 0"
                ));
            }
            if let Some(id) = ids.iter().find(|id| **id < -1 || **id >= experts as i64) {
                return Err(format!(
                    "token {t}: id {id}, expected -1 to {}",
                    experts - 1
                ));
            }
        }
        Ok(())
    }

    /// Reads a file, one route a line; blank lines are skipped.
    pub fn read_file(path: &Path) -> Result<Vec<Route>, RouteError> {
        let fail = |line, message: String| RouteError {
            path: path.into(),
            line,
            message,
        };
        let text = fs::read_to_string(path).map_err(|e| fail(None, e.to_string()))?;
        let lines = text.lines().enumerate();
        let filled = lines.filter(|(_, line)| !line.trim().is_empty());
        filled
            .map(|(n, line)| Route::parse(line).map_err(|message| fail(Some(n + 1), message)))
            .collect()
    }

    /// Every route of the `.jsonl` files in a folder, with the name of its file and line.
    pub fn read_folder(folder: &Path) -> Result<Vec<(String, Route)>, RouteError> {
        let fail = |e: std::io::Error| RouteError {
            path: folder.into(),
            line: None,
            message: e.to_string(),
        };
        let entries = fs::read_dir(folder).map_err(fail)?;
        let paths = entries.map(|entry| entry.map(|e| e.path()));
        let mut paths: Vec<PathBuf> = paths.collect::<Result<_, _>>().map_err(fail)?;
        paths.retain(|path| path.extension().is_some_and(|e| e == "jsonl"));
        paths.sort();
        let mut routes = Vec::new();
        for path in paths {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let read = Route::read_file(&path)?.into_iter().enumerate();
            routes.extend(read.map(|(n, route)| (format!("{name} {}", n + 1), route)));
        }
        Ok(routes)
    }

    /// Appends the route to a file that does not hold it yet.
    pub fn append(&self, path: &Path) -> Result<(), RouteError> {
        let fail = |e: std::io::Error| RouteError {
            path: path.into(),
            line: None,
            message: e.to_string(),
        };
        if path.exists() && Route::read_file(path)?.contains(self) {
            return Ok(());
        }
        let open = fs::OpenOptions::new().append(true).create(true).open(path);
        writeln!(open.map_err(fail)?, "{self}").map_err(fail)
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
