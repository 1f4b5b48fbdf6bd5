//! `layerlet trace`.

use crate::common::ModelArgs;
use crate::error::CommandError;
use crate::{format, ids};
use layerlet_engine::trace;
use serde_json::json;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes embed, layerN.{mixer_out,out,router_logits,router_ids,router_weights}, layerN.{conv_state,ssm_state} or
/// layerN.{k_cache,v_cache}, final_norm, logits and input_ids.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  layerlet trace --model DIR --ids 17,4,99 --out trace.safetensors
  layerlet trace --model DIR --ids ids.json --chunks 70,30,1,... --out trace.safetensors

The file depends on the ids and the model alone: two traces with different chunks, backends or
fusion are byte for byte the same, so `cmp` compares them.")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// Token ids: a list like 1,2,3, or a file (text, JSON, safetensors with input_ids)
    #[arg(long, value_name = "FILE|LIST")]
    ids: String,
    /// Rows of each step; `...` repeats the last size [default: all at once]
    #[arg(long, value_name = "SIZES")]
    chunks: Option<String>,
    /// File to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// JSON on stdout
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<(), CommandError> {
    check_folder(&args.out)?;
    let checkpoint = args.model.open()?;
    let ids = ids::read(&args.ids, checkpoint.config.model.vocab)?;
    let chunks = match &args.chunks {
        None => vec![ids.len()],
        Some(text) => chunks(text, ids.len()).map_err(|e| CommandError::argument("--chunks", e))?,
    };
    let mut model = args.model.load(&checkpoint, ids.len())?;
    let file = trace(&mut model, &ids, &chunks)?;
    write_whole(&args.out, &file)?;
    if args.json {
        return format::json(&json!({
            "out": args.out,
            "bytes": file.len(),
            "tokens": ids.len(),
            "steps": chunks.len(),
        }));
    }
    format::line(&format!(
        "{}: {} tokens in {} steps, {}",
        args.out.display(),
        ids.len(),
        chunks.len(),
        format::bytes(file.len() as u64),
    ))
}

/// `70,30,1,...` for 150 tokens: 70, 30, then 50 times 1.
fn chunks(text: &str, total: usize) -> Result<Vec<usize>, String> {
    let mut sizes = Vec::new();
    let mut words = text.split(',').map(str::trim).peekable();
    while let Some(word) = words.next() {
        let left = sizes
            .iter()
            .fold(total, |left, size| left.saturating_sub(*size));
        match (word, words.peek(), sizes.last().copied()) {
            ("...", None, Some(last)) => {
                sizes.extend(std::iter::repeat_n(last, left / last));
                sizes.extend(Some(left % last).filter(|rest| *rest > 0));
            }
            ("...", _, _) => return Err("... must follow a size and end the list".into()),
            _ => match word.parse() {
                Ok(0) | Err(_) => return Err(format!("{word:?} is not a size above 0")),
                Ok(size) => sizes.push(size),
            },
        }
    }
    let sum = sizes.iter().try_fold(0usize, |a, b| a.checked_add(*b));
    match sum == Some(total) {
        true => Ok(sizes),
        false => Err(format!("{text} does not add up to the {total} ids")),
    }
}

/// Better now than after the whole computation.
fn check_folder(path: &Path) -> Result<(), CommandError> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
    match folder.is_none_or(Path::is_dir) && !path.is_dir() {
        true => Ok(()),
        false => Err(CommandError::file(
            path,
            "is no place for a file: its folder is missing, or it is one",
        )),
    }
}

/// Writes beside the target and renames: a reader never sees half a file, a failure leaves the old one.
/// A link is followed; what is no regular file (a device, a pipe) is written to.
fn write_whole(path: &Path, content: &[u8]) -> Result<(), CommandError> {
    let failed = |e| CommandError::file(path, e);
    let target = match fs::metadata(path) {
        Err(_) => path.to_path_buf(),
        Ok(found) if found.is_file() => fs::canonicalize(path).map_err(failed)?,
        Ok(_) => return fs::write(path, content).map_err(failed),
    };
    let mut part = target.as_os_str().to_owned();
    part.push(format!(".{}.part", std::process::id()));
    let part = PathBuf::from(part);
    let mut file = fs::File::create_new(&part).map_err(failed)?;
    let written = file.write_all(content);
    written
        .and_then(|()| fs::rename(&part, &target))
        .map_err(|e| {
            let _ = fs::remove_file(&part);
            failed(e)
        })
}

#[cfg(test)]
mod tests {
    use super::chunks;

    #[test]
    fn sizes() {
        let check = |text: &str, total, expect: &[usize]| {
            assert_eq!(chunks(text, total).unwrap(), expect);
        };
        check("5", 5, &[5]);
        check("3,2", 5, &[3, 2]);
        check("2,1,...", 5, &[2, 1, 1, 1]);
        check("2,...", 5, &[2, 2, 1]);
        check("2, 3, ...", 5, &[2, 3]);
    }

    #[test]
    fn refused() {
        let check = |text: &str, fragment: &str| {
            let error = chunks(text, 5).unwrap_err();
            assert!(error.contains(fragment), "{error}");
        };
        check("3", "does not add up to the 5 ids");
        check("3,3", "does not add up");
        check("6,...", "does not add up");
        check("0,5", "\"0\" is not a size above 0");
        check("...", "must follow a size");
        check("1,...,1", "must follow a size and end the list");
        check("18446744073709551615,6", "does not add up");
        check("18446744073709551615,6,...", "does not add up");
        check("18446744073709551615,6,1", "does not add up");
        check("x", "\"x\" is not a size");
    }
}
