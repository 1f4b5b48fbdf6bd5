use super::interface::Binding;

/// Why a module has no OpenCL form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The entry point is not there.
    #[error("no compute entry point `{name}`; the module has {found:?}")]
    NoEntryPoint {
        /// What was asked for.
        name: String,
        /// The compute entry points that are there.
        found: Vec<String>,
    },
    /// An override still waits for its value.
    #[error("override `{name}` has no value yet: specialise the module first")]
    Override {
        /// The override's name or number.
        name: String,
    },
    /// A construct without an OpenCL form.
    #[error("{place}: {construct} is refused: {why}")]
    Unsupported {
        /// The function or variable that has it.
        place: String,
        /// The construct, as naga's IR calls it.
        construct: String,
        /// The reason.
        why: &'static str,
    },
    /// A buffer's type lies otherwise in OpenCL than in WGSL.
    #[error(
        "{place}: {part} lies at byte {wgsl} in WGSL and at {opencl} in OpenCL; add padding members or use plain arrays"
    )]
    Layout {
        /// The variable.
        place: String,
        /// The member, the stride or the size.
        part: String,
        /// Bytes in WGSL.
        wgsl: u32,
        /// Bytes in OpenCL.
        opencl: u32,
    },
    /// Uniform parameters beyond what every OpenCL device takes as arguments.
    #[error(
        "the uniform at {binding:?} needs {bytes} bytes of arguments; at most {most} are portable"
    )]
    UniformTooLarge {
        /// Where it is bound; none for immediates.
        binding: Option<Binding>,
        /// Bytes needed.
        bytes: u32,
        /// Bytes allowed.
        most: u32,
    },
    /// The instruction builder refused: the module was not valid, or the writer has a fault.
    #[error("{place}: the SPIR-V builder refused an instruction: {message}")]
    Builder {
        /// The function.
        place: String,
        /// The builder's words.
        message: String,
    },
}
