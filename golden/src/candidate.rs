//! What is compared with the reference: a backend, under the name that the table gives it, and the
//! digest of the build that it comes from.

use layerlet_core::backend::{Backend, BackendError, DeviceIdentity, Instance};
use layerlet_core::buffer::BufferTable;
use layerlet_core::launch::Layerlet;
use layerlet_cpu::{Cpu, Level};
use layerlet_wgpu::{OpenError, Wgpu};

/// A backend in one of its settings. Its identity carries the name of the setting, so that two
/// settings of one backend are two rows of the table.
pub struct Candidate {
    /// Name in the table: the backend's, and the setting where it is not the usual one.
    pub name: String,
    /// SHA-256 of the kernels, or of the build that holds them.
    pub kernel: String,
    backend: Box<dyn Backend>,
}

impl Candidate {
    /// The CPU backend as it is used, with every launch shared out among more threads than it is worth,
    /// however small (cuts between threads must not show), and with narrower instructions than this
    /// processor has.
    pub fn cpu() -> Vec<Candidate> {
        let usual = [
            ("cpu".into(), Cpu::new()),
            (
                "cpu, 3 threads".into(),
                Cpu::with_threads(3).inline_below(0),
            ),
        ];
        let levels = Level::available().into_iter().rev().skip(1);
        let narrower = levels.map(|level| {
            let cpu = Cpu::with_threads(2).inline_below(0).at_level(level);
            (format!("cpu, {}", level.name()), cpu)
        });
        let settings = usual.into_iter().chain(narrower);
        settings
            .map(|(name, cpu)| Candidate {
                name,
                kernel: layerlet_cpu::BUILD_DIGEST.into(),
                backend: Box::new(cpu),
            })
            .collect()
    }

    /// The settings that [`Candidate::cpu`] leaves out, because the processor lacks their instructions.
    pub fn cpu_out_of_reach() -> Vec<String> {
        let levels = Level::missing().into_iter();
        levels.map(|level| format!("cpu, {level}")).collect()
    }

    /// The GPU kernels on the first Vulkan device that passes its self-test.
    pub fn wgpu() -> Result<Candidate, OpenError> {
        Ok(Candidate {
            name: layerlet_wgpu::NAME.into(),
            kernel: layerlet_kernels::source::digest(),
            backend: Box::new(Wgpu::new()?),
        })
    }

    /// The device itself, whatever the setting.
    pub fn device(&self) -> DeviceIdentity {
        self.backend.identity()
    }
}

impl Backend for Candidate {
    fn identity(&self) -> DeviceIdentity {
        DeviceIdentity {
            backend: self.name.clone(),
            ..self.backend.identity()
        }
    }

    fn layerlets(&self) -> &[Layerlet] {
        self.backend.layerlets()
    }

    fn open(&self, model: &BufferTable) -> Result<Box<dyn Instance>, BackendError> {
        self.backend.open(model)
    }
}
