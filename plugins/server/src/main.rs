//! layerlet
fn main() {}
