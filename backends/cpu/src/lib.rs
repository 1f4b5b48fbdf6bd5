//! layerlet-cpu
