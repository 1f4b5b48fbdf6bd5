//! `llama-bench` of llama.cpp: `-o json` prints a list with one entry a test, prompt processing
//! (`n_prompt` tokens, `n_gen` 0) and generation (`n_prompt` 0).

use super::child::run_json;
use super::compare::Sample;
use super::{Args, program, threads};
use serde::Deserialize;
use std::path::Path;

/// One test; the other fields say what was built and run.
#[derive(Deserialize)]
struct Test {
    n_prompt: u64,
    n_gen: u64,
    avg_ts: f64,
    #[serde(default)]
    samples_ts: Vec<f64>,
}

impl Test {
    /// Tokens per second; the mean is that of the samples, of which there is one.
    fn tokens_per_second(&self) -> f64 {
        match self.samples_ts[..] {
            [only] => only,
            _ => self.avg_ts,
        }
    }
}

/// One run of both tests.
pub fn measure(bin: &Path, model: &Path, args: &Args) -> Result<Sample, String> {
    let (prompt, generate) = (u64::from(args.prompt), u64::from(args.generate));
    let mut command = program(bin, &["-m"]);
    command.arg(model);
    command.args(["-p", &prompt.to_string(), "-n", &generate.to_string()]);
    command.args(["-r", "1", "-t", &threads(args).to_string(), "-o", "json"]);
    let run = run_json::<Vec<Test>>(command)?;
    let speed = |n_prompt, n_gen| {
        let test = run
            .output
            .iter()
            .find(|t| (t.n_prompt, t.n_gen) == (n_prompt, n_gen));
        let rate = test.map(Test::tokens_per_second).filter(|rate| *rate > 0.0);
        rate.ok_or_else(|| {
            let program = bin.display();
            format!("{program} printed no speed for n_prompt {n_prompt}, n_gen {n_gen}")
        })
    };
    let prefill = speed(prompt, 0)?;
    Ok(Sample {
        prefill,
        decode: speed(0, generate)?,
        // It times the prompt without drawing a token: what the first one costs beside it is nothing.
        time_to_first_token: prompt as f64 / prefill,
        peak_resident: run.peak_resident,
    })
}
