//! layerlet-engine
