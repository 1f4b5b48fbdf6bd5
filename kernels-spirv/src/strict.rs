//! The pass that forbids contraction in Vulkan SPIR-V.
