//! A launch: one operation with its operands and static parameters. What changes from step to step
//! lies in the operands, never in the launch, so a recorded launch has nothing to go stale.

use crate::buffer::{BufferError, BufferId, BufferTable};
use crate::dtype::DType;
use crate::memory::Memory;
use crate::ops::*;
use crate::work::{Occupancy, Work};
use alloc::{
    string::{String, ToString},
    vec::Vec,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How a launch uses an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Access {
    Read,
    Write,
    /// State: slots or pages named by index buffers are read, others written; the rest stays.
    ReadWrite,
}

/// One operand of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Operand {
    pub name: &'static str,
    pub buffer: BufferId,
    pub dtype: DType,
    pub access: Access,
}

/// Bytes that a launch reads and writes: least and most, where routes or lengths decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Traffic {
    pub min: u64,
    pub max: u64,
}

/// Why a launch cannot run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum LaunchError {
    #[error("{op}: {source}")]
    Buffer {
        op: &'static str,
        source: BufferError,
    },
    #[error("{op}: {parameter} is {found}, expected {expected}")]
    Parameter {
        op: &'static str,
        parameter: &'static str,
        found: String,
        expected: String,
    },
    /// Step data that the host should have refused.
    #[error("{op}: {what} is {found}, expected {expected}")]
    StepData {
        op: &'static str,
        what: String,
        found: u64,
        expected: String,
    },
}

impl LaunchError {
    /// A buffer that does not fit its operand.
    pub fn buffer(op: &'static str, source: BufferError) -> Self {
        LaunchError::Buffer { op, source }
    }

    /// A static parameter that the operation cannot use.
    pub fn parameter(
        op: &'static str,
        parameter: &'static str,
        found: impl ToString,
        expected: impl Into<String>,
    ) -> Self {
        LaunchError::Parameter {
            op,
            parameter,
            found: found.to_string(),
            expected: expected.into(),
        }
    }

    /// A value in a step buffer that points outside of what it indexes.
    pub fn step_data(
        op: &'static str,
        what: impl Into<String>,
        found: u32,
        expected: impl Into<String>,
    ) -> Self {
        LaunchError::StepData {
            op,
            what: what.into(),
            found: found.into(),
            expected: expected.into(),
        }
    }
}

/// Refuses a parameter that is not a positive finite number.
pub(crate) fn check_positive(
    op: &'static str,
    parameter: &'static str,
    value: f32,
) -> Result<(), LaunchError> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    let expected = "a positive finite number";
    Err(LaunchError::parameter(op, parameter, value, expected))
}

/// Bytes of all operands but those in `except`.
pub(crate) fn traffic_without(
    operands: Vec<Operand>,
    except: &[BufferId],
    buffers: &BufferTable,
) -> u64 {
    operands
        .iter()
        .filter(|o| !except.contains(&o.buffer))
        .filter_map(|o| buffers.get(o.buffer).ok())
        .map(|d| d.bytes() as u64)
        .sum()
}

/// What every operation can say of itself, and its reference.
pub trait Operation {
    /// The field's name of the operation.
    const NAME: &'static str;

    /// Operands in declaration order.
    fn operands(&self) -> Vec<Operand>;

    /// Checks the shapes of all operands against each other and the static parameters.
    fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError>;

    /// The reference: defines the bytes of every written operand.
    fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError>;

    /// Bytes moved. The default counts every operand once; operations that touch only a part
    /// (gathers, experts, pages) say so themselves.
    fn traffic(&self, buffers: &BufferTable) -> Traffic {
        let all = traffic_without(self.operands(), &[], buffers);
        Traffic { min: all, max: all }
    }

    /// Bytes moved by a step that fills its shape like this. The default is for operations whose traffic
    /// does not depend on it.
    fn bytes(&self, buffers: &BufferTable, _step: &Occupancy) -> u64 {
        self.traffic(buffers).max
    }

    /// Multiply-adds, of linear layers alone; its bytes stay 0.
    fn multiply_adds(&self, _buffers: &BufferTable, _step: &Occupancy) -> Work {
        Work::default()
    }
}

/// Declares the struct of an operation: operands with access and dtype, then static parameters.
macro_rules! operation {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $( $(#[$ometa:meta])* $access:ident $operand:ident : $elem:ty, )*
            ; $( $(#[$pmeta:meta])* $param:ident : $pty:ty, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[allow(missing_docs)]
        pub struct $name {
            $( $(#[$ometa])* pub $operand: $crate::buffer::Buf<$elem>, )*
            $( $(#[$pmeta])* pub $param: $pty, )*
        }

        impl $name {
            fn declared_operands(&self) -> alloc::vec::Vec<$crate::launch::Operand> {
                alloc::vec![$( $crate::launch::Operand {
                    name: stringify!($operand),
                    buffer: self.$operand.id(),
                    dtype: <$elem as $crate::dtype::Element>::DTYPE,
                    access: $crate::launch::operation!(@access $access),
                }, )*]
            }
        }
    };
    (@access read) => { $crate::launch::Access::Read };
    (@access write) => { $crate::launch::Access::Write };
    (@access read_write) => { $crate::launch::Access::ReadWrite };
}
pub(crate) use operation;

/// A fused kernel that backends may offer. What it computes is, by definition, its stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layerlet {
    /// quantize_rows, then the linears that read its codes.
    QuantizeLinear,
    /// From the routes to the weighted sum of the routed experts.
    RoutedMoe,
    /// Router, routed experts, shared expert and their sum.
    MoeLayer,
    /// Convolution, gates, delta rule, gated norm.
    GdnLayer,
    /// q/k norms, RoPE, append, attention with its gate.
    AttentionLayer,
    /// lm_head, then argmax; logits are never stored.
    LmHeadArgmax,
}

impl Layerlet {
    /// All layerlets, widest first: the order in which a rewrite tries them.
    pub const ALL: [Layerlet; 6] = [
        Layerlet::MoeLayer,
        Layerlet::GdnLayer,
        Layerlet::AttentionLayer,
        Layerlet::LmHeadArgmax,
        Layerlet::RoutedMoe,
        Layerlet::QuantizeLinear,
    ];

    /// Name in tables and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Layerlet::QuantizeLinear => "quantize_linear",
            Layerlet::RoutedMoe => "routed_moe",
            Layerlet::MoeLayer => "moe_layer",
            Layerlet::GdnLayer => "gdn_layer",
            Layerlet::AttentionLayer => "attention_layer",
            Layerlet::LmHeadArgmax => "lm_head_argmax",
        }
    }
}

/// Stages replaced by one kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fused {
    /// Which kernel.
    pub layerlet: Layerlet,
    /// What it computes, op by op. Never nested.
    #[serde(deserialize_with = "stages")]
    pub stages: Vec<Launch>,
    /// Also store what only the stages see (golden's bisection); otherwise those buffers stay poison.
    pub keep_intermediates: bool,
}

/// Bytes that nest fused launches are refused where they are read: a million levels are a few megabytes.
fn stages<'de, D: serde::Deserializer<'de>>(bytes: D) -> Result<Vec<Launch>, D::Error> {
    let stages = Vec::<Stage>::deserialize(bytes)?;
    Ok(stages.into_iter().map(Launch::from).collect())
}

macro_rules! launches {
    ($($name:ident),* $(,)?) => {
        /// An operation with its operands, or stages behind one kernel.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[allow(missing_docs)]
        pub enum Launch {
            $( $name($name), )*
            Fused(Fused),
        }

        /// The operations alone, in the order of [`Launch`], whose encoding it reads.
        #[derive(Deserialize)]
        enum Stage {
            $( $name($name), )*
        }

        impl From<Stage> for Launch {
            fn from(stage: Stage) -> Launch {
                match stage {
                    $( Stage::$name(op) => Launch::$name(op), )*
                }
            }
        }

        $( impl From<$name> for Launch {
            fn from(op: $name) -> Launch { Launch::$name(op) }
        } )*

        /// Names of all operations, in the order of the enum.
        pub const OPERATIONS: &[&str] = &[$( <$name as Operation>::NAME ),*];

        impl Launch {
            /// Name of the operation or layerlet.
            pub fn name(&self) -> &'static str {
                match self {
                    $( Launch::$name(_) => <$name as Operation>::NAME, )*
                    Launch::Fused(f) => f.layerlet.name(),
                }
            }

            /// Operands in order; those of a fused launch are its stages', one after the other.
            pub fn operands(&self) -> Vec<Operand> {
                match self {
                    $( Launch::$name(op) => op.operands(), )*
                    Launch::Fused(f) => f.stages.iter().flat_map(|s| s.operands()).collect(),
                }
            }

            /// Checks shapes and parameters.
            pub fn check(&self, buffers: &BufferTable) -> Result<(), LaunchError> {
                match self {
                    $( Launch::$name(op) => op.check(buffers), )*
                    Launch::Fused(f) => f.stages.iter().try_for_each(|s| s.check(buffers)),
                }
            }

            /// Runs the reference.
            pub fn run(&self, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
                match self {
                    $( Launch::$name(op) => op.run(memory), )*
                    Launch::Fused(f) => f.stages.iter().try_for_each(|s| s.run(memory)),
                }
            }

            /// Bytes moved by an unfused launch; [`crate::plan`] accounts for fused ones.
            pub fn traffic(&self, buffers: &BufferTable) -> Traffic {
                match self {
                    $( Launch::$name(op) => op.traffic(buffers), )*
                    Launch::Fused(f) => crate::plan::fused_traffic(f, buffers),
                }
            }

            /// Bytes moved and multiply-adds of a step that fills its shape like this.
            pub fn work(&self, buffers: &BufferTable, step: &Occupancy) -> Work {
                match self {
                    $( Launch::$name(op) => Work {
                        bytes: op.bytes(buffers, step),
                        ..op.multiply_adds(buffers, step)
                    }, )*
                    Launch::Fused(f) => crate::plan::fused_work(f, buffers, step),
                }
            }
        }
    };
}

launches!(
    Embedding,
    RmsNorm,
    AddRmsNorm,
    QuantizeRows,
    LinearBf16,
    LinearW8A8,
    CausalConv1d,
    DeltaGates,
    GatedDeltaRule,
    GatedRmsNorm,
    Rope,
    KvAppend,
    PagedAttention,
    RouterTopK,
    ExpertPrologue,
    GroupedLinearBf16,
    GroupedLinearW8A8,
    SiluMul,
    WeightedGather,
    SharedExpert,
    GatherRows,
    ConcatColumns,
    LmHead,
    Argmax,
    Sample,
    VerifyDrafts,
    RowAbsmax,
    QuantizeRowsBy,
    LinearW8A8Partial,
    Dequantize,
    AllReduceMax,
    AllReduceSum,
    AllGatherColumns,
    LocalExperts,
    ExchangeSlotRows,
);
