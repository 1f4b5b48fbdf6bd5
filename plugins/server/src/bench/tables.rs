//! A report for people.

use super::Report;
use crate::error::CommandError;
use crate::format;
use layerlet_engine::bench::{Decode, Movement, OperationTime, Summary};

pub fn print(report: &Report) -> Result<(), CommandError> {
    speeds(report)?;
    memory(report)?;
    operations("prefill", &report.prefill_operations)?;
    operations("decode", &report.decode_operations)
}

/// Columns of [`speed_rows`].
pub const SPEEDS: [&str; 7] = [
    "tokens/s",
    "median",
    "min",
    "max",
    "bytes per token",
    "GB/s",
    "of read bandwidth",
];

/// Prefill, then every decoding.
pub fn speed_rows(report: &Report) -> Vec<Vec<String>> {
    let prefill = &report.prefill;
    let name = format!("prefill of {}", report.settings.prompt);
    let first = speed(name, &prefill.tokens_per_second, prefill.movement.as_ref());
    let decode = report.decode.iter().chain(&report.contexts).map(decode);
    std::iter::once(first).chain(decode).collect()
}

fn speeds(report: &Report) -> Result<(), CommandError> {
    format::line(&format::table(&SPEEDS, 1, speed_rows(report)).to_string())?;
    let prefill = &report.prefill;
    let latency = prefill.time_to_first_token_seconds.map(|s| s * 1e3);
    format::line(&format!(
        "time to first token: {:.1} ms ({:.1} to {:.1})",
        latency.median, latency.min, latency.max
    ))
}

fn decode(decode: &Decode) -> Vec<String> {
    let name = format!("decode, batch {} after {}", decode.batch, decode.context);
    speed(name, &decode.tokens_per_second, decode.movement.as_ref())
}

fn speed(name: String, rate: &Summary, movement: Option<&Movement>) -> Vec<String> {
    let numbers = [rate.median, rate.min, rate.max].map(|n| format!("{n:.1}"));
    let moved = movement.map_or([const { String::new() }; 3], |m| {
        [
            format::bytes(m.bytes_per_token.round() as u64),
            format!("{:.1}", m.bytes_per_second / 1e9),
            percent(m.share_of_read_bandwidth),
        ]
    });
    [vec![name], numbers.to_vec(), moved.to_vec()].concat()
}

fn memory(report: &Report) -> Result<(), CommandError> {
    let memory = &report.memory;
    let known = [("weights", memory.weights), ("state", memory.state)];
    let peak = memory.peak_resident.map(|n| ("peak resident", n));
    let rows = known.into_iter().chain(peak);
    let rows = rows.map(|(name, n)| vec![name.into(), format::bytes(n), n.to_string()]);
    format::line(&format::table(&["memory", "", "bytes"], 1, rows).to_string())?;
    let Some(read) = &report.read_bandwidth else {
        return Ok(());
    };
    let [best, median] = [read.bytes_per_second.max, read.bytes_per_second.median].map(|n| n / 1e9);
    let buffer = format::bytes(read.buffer_bytes);
    let threads = report.threads;
    format::line(&format!(
        "read bandwidth: {best:.1} GB/s at best, {median:.1} in the median ({threads} threads over {buffer})"
    ))
}

fn operations(phase: &str, operations: &[OperationTime]) -> Result<(), CommandError> {
    if operations.is_empty() {
        return Ok(());
    }
    let header = [
        phase,
        "launches",
        "ms",
        "share",
        "bytes",
        "GB/s",
        "int8 GOP/s",
        "bf16 GOP/s",
    ];
    format::line(&format::table(&header, 1, operations.iter().map(operation)).to_string())
}

fn operation(operation: &OperationTime) -> Vec<String> {
    let work = &operation.work;
    let per_second = |n: u64| n as f64 / operation.seconds / 1e9;
    // A multiply-add is two operations.
    let rate = |multiply_adds: u64| match multiply_adds {
        0 => String::new(),
        n => format!("{:.1}", per_second(2 * n)),
    };
    vec![
        operation.name.clone(),
        operation.launches.to_string(),
        format!("{:.3}", operation.seconds * 1e3),
        percent(operation.share),
        format::bytes(work.bytes),
        format!("{:.1}", per_second(work.bytes)),
        rate(work.int8_multiply_adds),
        rate(work.bf16_multiply_adds),
    ]
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
