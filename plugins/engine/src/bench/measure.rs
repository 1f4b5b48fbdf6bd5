//! The order of a run: warm-up, alternating repeats, then what is counted and taken apart untimed.

use super::bandwidth::Reader;
use super::count::Counter;
use super::memory::peak_resident;
use super::profile::{Launches, Profiler};
use super::report::{Decode, Memory, Movement, OperationTime, Prefill, Report};
use super::runner::Plain;
use super::sequences::Sequences;
use super::settings::Settings;
use super::summary::Summary;
use crate::error::EngineError;
use crate::model::Model;
use layerlet_core::backend::DeviceIdentity;
use layerlet_core::buffer::Role;
use layerlet_core::work::Work;
use std::time::Instant;

/// Measures a model that was loaded with [`Settings::capacity`]; `progress` hears what is being done.
///
/// `threads` read for the bandwidth; they should be as many as the backend's.
pub fn measure(
    model: &mut Model,
    device: DeviceIdentity,
    threads: usize,
    settings: &Settings,
    progress: impl FnMut(&str),
) -> Result<Report, EngineError> {
    settings.validate()?;
    let mut run = Run {
        sequences: Sequences::new(settings, model.layout().config().vocab),
        model,
        settings,
        reader: None,
        progress,
    };
    run.warm_up()?;
    let peak_resident = peak_resident();
    if let Some(bytes) = settings.read_buffer {
        run.reader = Some(Reader::new(bytes, threads)?);
    }
    let (mut prefill, mut decode) = run.repeats()?;
    let (mut prefill_operations, mut decode_operations) = Default::default();
    if run.reader.is_some() {
        prefill_operations = run.take_prefill_apart(&mut prefill)?;
        decode_operations = run.take_decode_apart(&mut decode)?;
    }
    let contexts = run.contexts()?;
    Ok(Report {
        device,
        threads,
        fused: run.model.fused(),
        settings: settings.clone(),
        memory: run.memory(peak_resident),
        prefill: run.prefill(prefill),
        decode: decode.into_iter().map(|d| run.decode(d)).collect(),
        contexts: contexts.into_iter().map(|d| run.decode(d)).collect(),
        read_bandwidth: run.reader.map(|r| r.report()),
        prefill_operations,
        decode_operations,
    })
}

/// Repeats of one thing.
#[derive(Default)]
struct Timed {
    seconds: Vec<f64>,
    /// What one of them moves and computes.
    counted: Launches<Work>,
}

/// Repeats of a decoding.
struct TimedDecode {
    batch: usize,
    context: usize,
    timed: Timed,
}

impl TimedDecode {
    fn new(batch: usize, context: usize) -> TimedDecode {
        TimedDecode {
            batch,
            context,
            timed: Timed::default(),
        }
    }
}

struct Run<'a, P> {
    model: &'a mut Model,
    settings: &'a Settings,
    sequences: Sequences,
    reader: Option<Reader>,
    progress: P,
}

impl<P: FnMut(&str)> Run<'_, P> {
    /// Fills the contexts and prepares every plan that is timed.
    fn warm_up(&mut self) -> Result<(), EngineError> {
        let context = self.settings.context;
        (self.progress)(&format!("warm-up: contexts of {context} tokens"));
        let most = self.settings.sequences();
        self.sequences.fill(most, context, self.model, &mut Plain)?;
        (self.progress)("warm-up: prefill");
        self.sequences.prefill(self.model, &mut Plain)?;
        for &batch in &self.settings.batches {
            (self.progress)(&format!("warm-up: decode, batch {batch}"));
            // The second step reads what the first one wrote.
            let steps = self.settings.generate.min(2);
            self.sequences
                .decode(batch, steps, self.model, &mut Plain)?;
        }
        Ok(())
    }

    fn repeats(&mut self) -> Result<(Timed, Vec<TimedDecode>), EngineError> {
        let context = self.settings.context;
        let batches = self.settings.batches.iter();
        let mut decode: Vec<_> = batches.map(|&b| TimedDecode::new(b, context)).collect();
        let mut prefill = Timed::default();
        for repeat in 1..=self.settings.repeats {
            self.say(repeat, "prefill");
            prefill.seconds.push(self.time_prefill()?);
            self.read_memory();
            for decode in &mut decode {
                self.say(repeat, &format!("decode, batch {}", decode.batch));
                self.time_decode(decode)?;
            }
        }
        Ok((prefill, decode))
    }

    /// Decoding after further contexts: one sequence grows from each to the next.
    fn contexts(&mut self) -> Result<Vec<TimedDecode>, EngineError> {
        let mut all = Vec::new();
        for &context in &self.settings.contexts {
            let mut decode = TimedDecode::new(1, context);
            (self.progress)(&format!("warm-up: a context of {context} tokens"));
            self.sequences.fill(1, context, self.model, &mut Plain)?;
            for repeat in 1..=self.settings.repeats {
                self.say(repeat, &format!("decode after {context} tokens"));
                self.time_decode(&mut decode)?;
            }
            if self.reader.is_some() {
                self.count_decode(&mut decode)?;
            }
            all.push(decode);
        }
        Ok(all)
    }

    fn say(&mut self, repeat: usize, what: &str) {
        let repeats = self.settings.repeats;
        (self.progress)(&format!("repeat {repeat} of {repeats}: {what}"));
    }

    fn time_prefill(&mut self) -> Result<f64, EngineError> {
        let started = Instant::now();
        self.sequences.prefill(self.model, &mut Plain)?;
        Ok(started.elapsed().as_secs_f64())
    }

    /// Noise that falls on a repeat falls on the reading beside it.
    fn time_decode(&mut self, decode: &mut TimedDecode) -> Result<(), EngineError> {
        let started = Instant::now();
        let steps = self.settings.generate;
        self.sequences
            .decode(decode.batch, steps, self.model, &mut Plain)?;
        decode.timed.seconds.push(started.elapsed().as_secs_f64());
        self.read_memory();
        Ok(())
    }

    fn read_memory(&mut self) {
        if let Some(reader) = &mut self.reader {
            reader.sample();
        }
    }

    fn take_prefill_apart(
        &mut self,
        prefill: &mut Timed,
    ) -> Result<Vec<OperationTime>, EngineError> {
        (self.progress)("prefill: bytes and operations");
        let mut counter = Counter::default();
        self.sequences.prefill(self.model, &mut counter)?;
        prefill.counted = counter.launches;
        let mut profiler = Profiler::default();
        for _ in 0..self.settings.repeats {
            self.sequences.prefill(self.model, &mut profiler)?;
            profiler.end_pass();
        }
        Ok(profiler.operations(&prefill.counted, 1))
    }

    /// Counts every batch; the operations are those of the first.
    fn take_decode_apart(
        &mut self,
        decode: &mut [TimedDecode],
    ) -> Result<Vec<OperationTime>, EngineError> {
        (self.progress)("decode: bytes and operations");
        for decode in &mut *decode {
            self.count_decode(decode)?;
        }
        let steps = self.settings.generate;
        let mut profiler = Profiler::default();
        for _ in 0..self.settings.repeats {
            self.sequences
                .decode(decode[0].batch, steps, self.model, &mut profiler)?;
            profiler.end_pass();
        }
        Ok(profiler.operations(&decode[0].timed.counted, steps))
    }

    fn count_decode(&mut self, decode: &mut TimedDecode) -> Result<(), EngineError> {
        let mut counter = Counter::default();
        let steps = self.settings.generate;
        self.sequences
            .decode(decode.batch, steps, self.model, &mut counter)?;
        decode.timed.counted = counter.launches;
        Ok(())
    }

    fn memory(&self, peak_resident: Option<u64>) -> Memory {
        let table = self.model.layout().table();
        Memory {
            weights: table.bytes_of(Role::Weight),
            state: table.bytes_of(Role::State),
            peak_resident,
        }
    }

    fn prefill(&self, timed: Timed) -> Prefill {
        let tokens = self.settings.prompt;
        let seconds = Summary::new(timed.seconds);
        Prefill {
            tokens_per_second: seconds.map(|s| tokens as f64 / s),
            movement: self.movement(timed.counted.total(), tokens, seconds.median),
            time_to_first_token_seconds: seconds,
        }
    }

    fn decode(&self, decode: TimedDecode) -> Decode {
        let tokens = decode.batch * self.settings.generate;
        let seconds = Summary::new(decode.timed.seconds);
        Decode {
            batch: decode.batch,
            context: decode.context,
            tokens_per_second: seconds.map(|s| tokens as f64 / s),
            movement: self.movement(decode.timed.counted.total(), tokens, seconds.median),
        }
    }

    fn movement(&self, work: Work, tokens: usize, seconds: f64) -> Option<Movement> {
        let read = self.reader.as_ref()?.report().bytes_per_second.max;
        let bytes_per_second = work.bytes as f64 / seconds;
        Some(Movement {
            work,
            bytes_per_token: work.bytes as f64 / tokens as f64,
            bytes_per_second,
            share_of_read_bandwidth: bytes_per_second / read,
        })
    }
}
