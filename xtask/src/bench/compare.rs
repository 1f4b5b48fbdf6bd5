//! Two programs in turns, and what their runs say.

use comfy_table::{CellAlignment, Table, presets};
use layerlet_engine::bench::Summary;
use serde::Serialize;

/// One run.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Tokens per second of the prompt.
    pub prefill: f64,
    /// Tokens per second after it.
    pub decode: f64,
    /// In seconds.
    pub time_to_first_token: f64,
    /// In bytes.
    pub peak_resident: Option<u64>,
}

/// How each of them runs once.
pub struct Turns<A, B> {
    pub ours: A,
    pub theirs: B,
}

impl<A, B> Turns<A, B>
where
    A: Fn() -> Result<Sample, String>,
    B: Fn() -> Result<Sample, String>,
{
    /// Ours, theirs, ours, theirs, ...
    pub fn run(&self, repeats: u16) -> Result<Comparison, String> {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for repeat in 1..=repeats {
            eprintln!("repeat {repeat} of {repeats}: layerlet");
            ours.push((self.ours)()?);
            eprintln!("repeat {repeat} of {repeats}: the peer");
            theirs.push((self.theirs)()?);
        }
        Ok(Comparison::new(&ours, &theirs))
    }
}

/// The runs of one side.
#[derive(Debug, Serialize)]
pub struct Side {
    prefill_tokens_per_second: Summary,
    decode_tokens_per_second: Summary,
    time_to_first_token_seconds: Summary,
    peak_resident: Option<u64>,
}

impl Side {
    fn new(samples: &[Sample]) -> Side {
        let of = |f: fn(&Sample) -> f64| Summary::new(samples.iter().map(f).collect());
        Side {
            prefill_tokens_per_second: of(|s| s.prefill),
            decode_tokens_per_second: of(|s| s.decode),
            time_to_first_token_seconds: of(|s| s.time_to_first_token),
            peak_resident: samples.iter().filter_map(|s| s.peak_resident).max(),
        }
    }
}

/// Ours divided by theirs: above 1 is faster for speeds, slower or larger for the others.
#[derive(Debug, Serialize)]
pub struct Ratio {
    prefill_tokens_per_second: f64,
    decode_tokens_per_second: f64,
    time_to_first_token_seconds: f64,
    peak_resident: Option<f64>,
}

/// Both sides; medians are compared.
#[derive(Debug, Serialize)]
pub struct Comparison {
    ours: Side,
    theirs: Side,
    ratio: Ratio,
}

impl Comparison {
    fn new(ours: &[Sample], theirs: &[Sample]) -> Comparison {
        let (ours, theirs) = (Side::new(ours), Side::new(theirs));
        let of = |f: fn(&Side) -> &Summary| f(&ours).median / f(&theirs).median;
        let peaks = ours.peak_resident.zip(theirs.peak_resident);
        Comparison {
            ratio: Ratio {
                prefill_tokens_per_second: of(|s| &s.prefill_tokens_per_second),
                decode_tokens_per_second: of(|s| &s.decode_tokens_per_second),
                time_to_first_token_seconds: of(|s| &s.time_to_first_token_seconds),
                peak_resident: peaks.map(|(a, b)| a as f64 / b as f64),
            },
            ours,
            theirs,
        }
    }

    /// For people.
    pub fn table(&self) -> Table {
        let rate = |s: &Summary| format!("{:.1} ({:.1} to {:.1})", s.median, s.min, s.max);
        let time = |s: &Summary| rate(&s.map(|s| s * 1e3));
        let mib =
            |n: Option<u64>| n.map_or("unknown".into(), |n| format!("{:.1}", n as f64 / 1048576.0));
        let ratio = |r: f64| format!("{r:.2}");
        let (a, b, r) = (&self.ours, &self.theirs, &self.ratio);
        let rows = [
            [
                "prefill, tokens/s".into(),
                rate(&a.prefill_tokens_per_second),
                rate(&b.prefill_tokens_per_second),
                ratio(r.prefill_tokens_per_second),
            ],
            [
                "decode, tokens/s".into(),
                rate(&a.decode_tokens_per_second),
                rate(&b.decode_tokens_per_second),
                ratio(r.decode_tokens_per_second),
            ],
            [
                "time to first token, ms".into(),
                time(&a.time_to_first_token_seconds),
                time(&b.time_to_first_token_seconds),
                ratio(r.time_to_first_token_seconds),
            ],
            [
                "peak resident, MiB".into(),
                mib(a.peak_resident),
                mib(b.peak_resident),
                r.peak_resident.map_or("unknown".into(), ratio),
            ],
        ];
        let mut table = Table::new();
        table
            .load_style(presets::ASCII_MARKDOWN)
            .set_header(["median (min to max)", "layerlet", "llama.cpp", "ratio"])
            .add_rows(rows);
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}
