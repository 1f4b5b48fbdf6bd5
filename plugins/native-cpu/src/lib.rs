//! The CPU backend behind the C ABI of plugins.
//!
//! Options: `threads=N` (all cores), `level=NAME` (the widest), `inline_below=N` (as the backend thinks
//! best). No byte depends on them.

use layerlet_abi::{Exported, Options};
use layerlet_core::backend::Backend;
use layerlet_cpu::{Cpu, Level};

/// What this library exports.
pub struct CpuPlugin;

impl Exported for CpuPlugin {
    fn create(options: &Options<'_>) -> Result<Box<dyn Backend>, String> {
        let number = |name: &str, value: &str| {
            let parsed = value.parse::<usize>();
            parsed.map_err(|_| format!("option {name} is {value:?}, expected a number"))
        };
        let (mut threads, mut level, mut inline_below) = (None, Level::widest(), None);
        for (name, value) in options.iter() {
            match name {
                "threads" => threads = Some(number(name, value)?),
                "inline_below" => inline_below = Some(number(name, value)?),
                "level" => {
                    level = Level::named(value).map_err(|e| format!("option level: {e}"))?;
                }
                other => {
                    return Err(format!(
                        "there is no option {other:?}; there are threads, level, inline_below"
                    ));
                }
            }
        }
        let cpu = threads
            .map_or_else(Cpu::new, Cpu::with_threads)
            .at_level(level);
        Ok(Box::new(match inline_below {
            Some(work) => cpu.inline_below(work),
            None => cpu,
        }))
    }
}

layerlet_abi::export_backend!(CpuPlugin);
