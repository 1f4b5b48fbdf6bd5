//! Running other programs, with errors that say which.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The workspace's root folder.
pub fn root() -> PathBuf {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    manifest
        .parent()
        .expect("xtask lies in the workspace")
        .to_path_buf()
}

/// `cargo` at the workspace root, as the one that runs us.
pub fn cargo<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// Runs a command to its end; anything but success is an error that names it.
pub fn run(mut command: Command) -> Result<(), String> {
    let line = render(&command);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{line}` ended with {status}")),
        Err(e) => Err(format!("`{line}` did not start: {e}")),
    }
}

/// True when a command starts and succeeds, its output thrown away.
pub fn succeeds(mut command: Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The command as it would be typed, without the program's folder.
pub fn render(command: &Command) -> String {
    let program = PathBuf::from(command.get_program());
    let mut words = vec![
        program
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
    ];
    words.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
    words.join(" ")
}
