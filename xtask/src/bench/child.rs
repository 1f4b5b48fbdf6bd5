//! A measured program: its output, and the most memory it had.

use crate::command::render;
use layerlet_engine::bench::peak_resident_in;
use serde::de::DeserializeOwned;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How often the memory is looked at. The system keeps the peak itself; only its growth after the last look
/// is missed.
const LOOK: Duration = Duration::from_millis(10);

/// What a program that succeeded has left.
pub struct Finished<T> {
    pub output: T,
    /// `None` where the system does not say.
    pub peak_resident: Option<u64>,
}

/// Runs a program that prints one JSON document.
pub fn run_json<T: DeserializeOwned>(mut command: Command) -> Result<Finished<T>, String> {
    let line = render(&command);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|e| format!("`{line}` did not start: {e}"))?;
    // Both pipes are emptied while it runs, or a talkative program would wait for ever.
    let stdout = drain(child.stdout.take());
    let stderr = drain(child.stderr.take());
    let watched = watch(&mut child);
    let [stdout, stderr] = [stdout, stderr].map(|pipe| pipe.join().unwrap_or_default());
    let said = String::from_utf8_lossy(&stderr).trim().to_string();
    let (status, peak_resident) = watched.map_err(|e| format!("`{line}`: {e}"))?;
    if !status.success() {
        return Err(format!("`{line}` ended with {status}; it said:\n{said}"));
    }
    let output = serde_json::from_slice(&stdout)
        .map_err(|e| format!("`{line}` did not print the expected JSON: {e}; it said:\n{said}"))?;
    Ok(Finished {
        output,
        peak_resident,
    })
}

fn drain(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What was read before a failure still tells something.
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

fn watch(child: &mut Child) -> std::io::Result<(std::process::ExitStatus, Option<u64>)> {
    let status_file = format!("/proc/{}/status", child.id());
    let mut peak = None;
    loop {
        let now = std::fs::read_to_string(&status_file).ok();
        peak = now.and_then(|text| peak_resident_in(&text)).max(peak);
        if let Some(status) = child.try_wait()? {
            return Ok((status, peak));
        }
        thread::sleep(LOOK);
    }
}
