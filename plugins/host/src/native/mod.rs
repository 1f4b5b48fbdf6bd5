//! Native plugins: shared libraries behind the C ABI of [`layerlet_abi`].

mod backend;
mod library;

pub use backend::NativeBackend;
pub use library::NativePlugin;
