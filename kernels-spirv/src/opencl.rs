//! The writer of OpenCL-dialect SPIR-V.
